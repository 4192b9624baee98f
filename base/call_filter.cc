#include "base/call_filter.h"

#include <asm/termbits.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

// Of newer headers than Debian 12 has.
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

namespace sluice::base {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
#error "there is no filter of system calls for this processor yet"
#endif

constexpr std::uint32_t refuse(int error) {
  return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error) & SECCOMP_RET_DATA);
}

// A program for the kernel's little machine. Each part looks for one call and ends in a verdict;
// what no part knows gets the last one.
class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0);
    give(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    constexpr std::uint32_t x32_bit = 0x40000000;  // the same calls by other numbers
    add(BPF_JMP | BPF_JGE | BPF_K, x32_bit, 0, 1);
    give(SECCOMP_RET_KILL_PROCESS);
#endif
  }

  void all(std::initializer_list<long> calls, std::uint32_t verdict) {
    for (const long call : calls) {
      add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1);
      give(verdict);
    }
  }

  // Allows the call unless the argument has one of the bits.
  void allow_without(long call, unsigned argument, std::uint32_t bits, std::uint32_t verdict) {
    constexpr std::uint8_t length = 4;
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, length);
    load(low_half(argument));
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    give(verdict);
    give(SECCOMP_RET_ALLOW);
  }

  // Allows the call with one of these values (of 32 bits) alone, and fails otherwise.
  void allow_with(long call, unsigned argument, std::initializer_list<unsigned long> values) {
    const auto length = static_cast<std::uint8_t>(2 + 2 * values.size());
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, length);
    load(low_half(argument));
    for (const unsigned long value : values) {
      add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, 1);
      give(SECCOMP_RET_ALLOW);
    }
    give(refuse(EPERM));
  }

  // Allows the call if a pointer is null, and fails otherwise.
  void allow_with_null(long call, unsigned argument) {
    constexpr std::uint8_t length = 6;
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, length);
    load(low_half(argument));
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
    load(low_half(argument) + 4);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
    give(SECCOMP_RET_ALLOW);
    give(refuse(EPERM));
  }

  int install(std::uint32_t last_verdict, unsigned flags) {
    give(last_verdict);
    const sock_fprog program = {static_cast<unsigned short>(instructions_.size()),
                                instructions_.data()};
    const long result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (result > 0) return EBUSY;  // the number of a thread that has filters of its own
    return result == 0 ? 0 : errno;
  }

 private:
  static std::size_t low_half(unsigned argument) {
    return offsetof(seccomp_data, args) + 8 * std::size_t{argument};
  }
  void add(unsigned code, std::uint32_t value, std::uint8_t if_true, std::uint8_t if_false) {
    instructions_.push_back({static_cast<std::uint16_t>(code), if_true, if_false, value});
  }
  void load(std::size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0);
  }
  void give(std::uint32_t verdict) {
    add(BPF_RET | BPF_K, verdict, 0, 0);
  }

  std::vector<sock_filter> instructions_;
};

// What a thread that serves connections needs too.
void allow_common_calls(Filter& filter) {
  // Descriptors that are open. What a socket is connected to stays as it is.
  filter.all(
      {SYS_read,      SYS_write,       SYS_readv,           SYS_writev,         SYS_pread64,
       SYS_pwrite64,  SYS_preadv,      SYS_pwritev,         SYS_lseek,          SYS_close,
       SYS_dup,       SYS_fcntl,       SYS_fstat,           SYS_fstatfs,        SYS_accept,
       SYS_accept4,   SYS_getsockname, SYS_getpeername,     SYS_getsockopt,     SYS_setsockopt,
       SYS_recvfrom,  SYS_recvmsg,     SYS_sendmsg,         SYS_shutdown,       SYS_sendfile,
       SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll,           SYS_pselect6,       SYS_eventfd2,
       SYS_pipe2,     SYS_dup3,        SYS_timerfd_settime, SYS_timerfd_create, SYS_epoll_create1},
      SECCOMP_RET_ALLOW);
  filter.allow_with_null(SYS_sendto, 4);
  filter.allow_with(SYS_ioctl, 1,
                    {TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETS2, TCSETS2, TCSETSW2, TCSETSF2,
                     TIOCGWINSZ, TIOCGPGRP, FIONREAD, FIONBIO});
  // Memory, but no code that is made there, and no libraries.
  filter.allow_without(SYS_mmap, 2, PROT_EXEC, refuse(EACCES));
  filter.allow_without(SYS_mprotect, 2, PROT_EXEC, refuse(EACCES));
  filter.all({SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_mincore}, SECCOMP_RET_ALLOW);
  // Files are Landlock's matter.
  filter.all({SYS_openat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_faccessat, SYS_faccessat2,
              SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_unlinkat},
             SECCOMP_RET_ALLOW);
  // Threads, signals and time; limits of this process alone.
  filter.allow_with(SYS_prlimit64, 0, {0});
  filter.all({SYS_futex,        SYS_set_robust_list, SYS_rseq,           SYS_exit,
              SYS_exit_group,   SYS_getpid,          SYS_gettid,         SYS_getppid,
              SYS_tgkill,       SYS_rt_sigaction,    SYS_rt_sigprocmask, SYS_rt_sigreturn,
              SYS_sigaltstack,  SYS_restart_syscall, SYS_sched_yield,    SYS_sched_getaffinity,
              SYS_nanosleep,    SYS_clock_nanosleep, SYS_clock_gettime,  SYS_clock_getres,
              SYS_gettimeofday, SYS_getcpu,          SYS_getrusage,      SYS_getrandom,
              SYS_sysinfo,      SYS_uname,           SYS_membarrier,     SYS_getuid,
              SYS_geteuid,      SYS_getgid,          SYS_getegid},
             SECCOMP_RET_ALLOW);
#if defined(__x86_64__)
  filter.all(
      {SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_unlink, SYS_poll, SYS_select,
       SYS_epoll_wait, SYS_dup2, SYS_pipe, SYS_time, SYS_arch_prctl, SYS_getrlimit},
      SECCOMP_RET_ALLOW);
#endif
}

void allow_calls_of_process(Filter& filter) {
  allow_common_calls(filter);
  // Modes and lengths of files that are open, but not by a name, which Landlock would not look at.
  filter.all(
      {SYS_flock, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_ftruncate, SYS_fallocate,
       SYS_fadvise64, SYS_readahead, SYS_copy_file_range, SYS_preadv2, SYS_pwritev2, SYS_fchmod},
      SECCOMP_RET_ALLOW);
  filter.all(
      {SYS_mkdirat, SYS_renameat, SYS_renameat2, SYS_umask, SYS_utimensat, SYS_inotify_init1,
       SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_io_uring_enter, SYS_io_uring_register},
      SECCOMP_RET_ALLOW);
  filter.all({SYS_mlock, SYS_mlock2, SYS_munlock, SYS_msync}, SECCOMP_RET_ALLOW);
  // Processes of this program, but no new program and no other view of the system.
  filter.allow_without(SYS_clone, 0,
                       CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                           CLONE_NEWPID | CLONE_NEWNET,
                       SECCOMP_RET_KILL_PROCESS);
  filter.allow_with(SYS_kill, 1, {0});
  filter.allow_with(SYS_prctl, 0,
                    {PR_SET_NAME, PR_GET_NAME, PR_SET_PDEATHSIG, PR_SET_VMA, PR_SET_NO_NEW_PRIVS});
  filter.all({SYS_set_tid_address, SYS_wait4, SYS_waitid, SYS_sched_setaffinity, SYS_sched_getparam,
              SYS_sched_getscheduler, SYS_getpriority, SYS_setpriority, SYS_rt_sigtimedwait,
              SYS_rt_sigpending, SYS_rt_sigsuspend, SYS_getpgid, SYS_getsid, SYS_times,
              SYS_setitimer, SYS_getitimer},
             SECCOMP_RET_ALLOW);
  // Of rights there can only be less.
  filter.all(
      {SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self},
      SECCOMP_RET_ALLOW);
#if defined(__x86_64__)
  filter.all({SYS_mkdir, SYS_rmdir, SYS_rename, SYS_getdents, SYS_pause, SYS_getpgrp, SYS_alarm},
             SECCOMP_RET_ALLOW);
#endif
}

// What libraries try and can do without: names of users and hosts, for example, come through
// sockets.
void refuse_calls(Filter& filter) {
  filter.all({SYS_io_uring_setup, SYS_socket, SYS_socketpair}, refuse(EPERM));
}

// What a download does, and no other part of this program once it is confined.
void kill_for_connections(Filter& filter) {
  filter.all({SYS_connect, SYS_bind}, SECCOMP_RET_KILL_PROCESS);
}

// What no part of this program does once it is confined.
void kill_for_calls(Filter& filter) {
  filter.all({SYS_execve,
              SYS_execveat,
              SYS_ptrace,
              SYS_process_vm_readv,
              SYS_process_vm_writev,
              SYS_listen,
              SYS_pkey_mprotect,
              SYS_unshare,
              SYS_setns,
              SYS_mount,
              SYS_umount2,
              SYS_pivot_root,
              SYS_chroot,
              SYS_bpf,
              SYS_userfaultfd,
              SYS_perf_event_open,
              SYS_init_module,
              SYS_finit_module,
              SYS_delete_module,
              SYS_kexec_load,
              SYS_add_key,
              SYS_request_key,
              SYS_keyctl,
              SYS_open_by_handle_at,
              SYS_personality,
              SYS_reboot,
              SYS_setuid,
              SYS_setgid,
              SYS_setresuid,
              SYS_setresgid,
              SYS_capset},
             SECCOMP_RET_KILL_PROCESS);
}

}  // namespace

bool has_call_filters() {
  const std::uint32_t wanted = SECCOMP_RET_KILL_PROCESS;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0U, &wanted) == 0;
}

int filter_calls_of_process() {
  Filter filter;
  allow_calls_of_process(filter);
  refuse_calls(filter);
  kill_for_connections(filter);
  kill_for_calls(filter);
  return filter.install(refuse(ENOSYS), SECCOMP_FILTER_FLAG_TSYNC);
}

// Libraries that find names and check certificates make calls that nobody has listed, so the others
// are allowed. Sockets of this machine (of a container service, of a bus) could start programs, and
// Landlock has no rule for them; names are found without. What goes through a ring is seen by no
// filter.
int filter_calls_of_download() {
  Filter filter;
  filter.allow_with(SYS_socket, 0, {AF_INET, AF_INET6, AF_NETLINK});
  filter.all({SYS_io_uring_setup}, refuse(EPERM));
  kill_for_calls(filter);
  return filter.install(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC);
}

// The filter of the process holds beside it, and the stricter verdict counts.
int filter_calls_of_serving_thread() {
  Filter filter;
  allow_common_calls(filter);
  return filter.install(refuse(EPERM), 0);
}

}  // namespace sluice::base
