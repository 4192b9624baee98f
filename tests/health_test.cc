// What is slow or broken about a machine: each check where all is well, and where it is not.
#include "core/cli/health.h"

#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/catch.h"
#include "tests/temporary_folder.h"
#include "topology/file_root.h"

namespace {

using namespace sluice::cli;
using sluice::test::TemporaryFolder;
using sluice::test::write;
namespace topology = sluice::topology;
using sluice::topology::FileRoot;
using sluice::topology::Machine;
namespace fs = std::filesystem;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

topology::ThreadChoice threads(const char* reason, bool siblings_only = false) {
  topology::ThreadChoice choice;
  choice.cpus = {0, 1};
  choice.siblings_only = siblings_only;
  choice.reason = reason;
  return choice;
}

// What is not good says what to do.
void expect(const HealthCheck& check, Health health) {
  INFO(check.name << ": " << check.found);
  CHECK(check.health == health);
  CHECK_FALSE(check.found.empty());
  CHECK(check.remedy.empty() == (health == Health::good));
}

}  // namespace

TEST_CASE("each instruction set but the plain one has fast kernels") {
  expect(check_processor(sluice::kernels::Isa::scalar), Health::slow);
  expect(check_processor(sluice::kernels::Isa::avx2), Health::good);
}

TEST_CASE("a share of a CPU is slow, and two threads of a core are told") {
  Machine machine;
  expect(check_threads(machine, threads("two")), Health::good);
  machine.quota = {0.5, "cpu cgroup /a (cpu.max)"};
  const HealthCheck check = check_threads(machine, threads("one"));
  expect(check, Health::slow);
  CHECK(check.found.find("0.50") != std::string::npos);
  CHECK(check.found.find("/a") != std::string::npos);
  machine.quota->cpus = 1;
  expect(check_threads(machine, threads("one")), Health::good);
  const HealthCheck siblings = check_threads(Machine(), threads("two", true));
  CHECK(siblings.found.find("one core") != std::string::npos);
}

TEST_CASE("little memory is slow") {
  Machine machine;
  expect(check_memory(machine), Health::good);  // nothing is known
  machine.memory_total_bytes = 8 * gib;
  machine.memory_available_bytes = 6 * gib;
  expect(check_memory(machine), Health::good);
  machine.memory_available_bytes = gib / 4;
  expect(check_memory(machine), Health::slow);
}

TEST_CASE("huge pages that are forbidden are slow") {
  Machine machine;
  for (const char* mode : {"always", "madvise"}) {
    machine.huge_pages = mode;
    expect(check_huge_pages(machine), Health::good);
  }
  machine.huge_pages.reset();
  expect(check_huge_pages(machine), Health::good);
  machine.huge_pages = "never";
  expect(check_huge_pages(machine), Health::slow);
}

TEST_CASE("areas of swap are counted") {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "proc");
  CHECK(check_swap(FileRoot(folder.path())).found == "none");
  write(folder.path() / "proc/swaps", "Filename Type Size Used Priority\n");
  CHECK(check_swap(FileRoot(folder.path())).found == "none");
  write(folder.path() / "proc/swaps", "Filename\n/dev/a partition 1 0 -2\n/dev/b file 1 0 -3\n");
  CHECK(check_swap(FileRoot(folder.path())).found.starts_with("2 areas"));
}

TEST_CASE(
    "a disk that rotates is found by the device of the folder, and by that of its partition") {
  const TemporaryFolder folder;
  struct stat facts {};
  REQUIRE(::stat(folder.path().c_str(), &facts) == 0);
  const auto disk = folder.path() / "sys/devices/disk";
  const std::string number =
      std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
  const auto block = folder.path() / "sys/dev/block";
  fs::create_directories(disk / "queue");
  fs::create_directories(disk / "part");
  fs::create_directories(block);
  for (const char* place : {".", "part"}) {
    fs::remove(block / number);
    fs::create_directory_symlink(disk / place, block / number);
    write(disk / "queue/rotational", "1\n");
    const HealthCheck check = check_disk(FileRoot(folder.path()), folder.path());
    // A temporary folder in memory is slow for another reason.
    CHECK(check.health == Health::slow);
    CHECK_FALSE(check.remedy.empty());
    write(disk / place / "uevent", "MAJOR=254\nDEVNAME=vda1\n");
    const HealthCheck of_virtual = check_disk(FileRoot(folder.path()), folder.path());
    CHECK(of_virtual.found.find("rotates") == std::string::npos);
    fs::remove(disk / place / "uevent");
  }
}

TEST_CASE("what was tried for reading, and does not work, is slow") {
  expect(check_reading({"io_uring", {}}), Health::good);
  const HealthCheck check = check_reading({"pread", {"io_uring: not permitted"}});
  expect(check, Health::slow);
  CHECK(check.found.find("not permitted") != std::string::npos);
}

TEST_CASE("few open files are slow") {
  expect(check_open_files(1024), Health::good);
  expect(check_open_files(256), Health::slow);
}

TEST_CASE("what a sandbox lacks is said, and slows nothing down") {
  const HealthCheck whole =
      check_sandbox({.landlock_version = 3, .filters_calls = true, .lacking = ""});
  expect(whole, Health::good);
  CHECK(whole.found.find("Landlock 3") != std::string::npos);
  const HealthCheck lacking =
      check_sandbox({.landlock_version = 0, .filters_calls = true, .lacking = "no Landlock"});
  expect(lacking, Health::good);
  CHECK(lacking.found == "not whole: no Landlock");
}

TEST_CASE("a state folder is made, and one that cannot be is broken") {
  const TemporaryFolder folder;
  expect(check_state_folder(folder.path() / "a/b"), Health::good);
  CHECK(fs::is_directory(folder.path() / "a/b"));
  CHECK(fs::status(folder.path() / "a/b").permissions() == fs::perms::owner_all);
  write(folder.path() / "file", "");
  expect(check_state_folder(folder.path() / "file/b"), Health::broken);
  expect(check_state_folder({}), Health::broken);
}
