// A clock whose time of day jumps every 20 ms, by up to a hundred years forwards or back, for
// scripts/chaos. Loaded with LD_PRELOAD; clocks that only measure time go on as they are.
//
//   gcc -O2 -fPIC -shared scripts/lib/jumping_clock.c -o jumping_clock.so
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  const uint64_t jumps = (uint64_t)now.tv_sec * 50 + (uint64_t)now.tv_nsec / 20000000;
  const uint64_t random = (jumps + 1) * 6364136223846793005U >> 20;
  const int64_t century = INT64_C(100) * 365 * 86400;
  return (int64_t)(random % (uint64_t)(2 * century)) - century;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec fine;
  clock_gettime(CLOCK_REALTIME, &fine);
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
