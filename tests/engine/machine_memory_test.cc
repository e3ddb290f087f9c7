// Limits of control groups, in trees that look like /proc and /sys.
#include "engine/machine_memory.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

constexpr size_t kGiB = size_t{1} << 30;
const char* const kMachine =
    "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
    "MemAvailable:    8388608 kB\n";

// With 16 GiB, 8 of them available, and these files beside.
MachineMemory MemoryWith(const std::map<std::string, std::string>& files) {
  const TemporaryFolder root;
  std::map<std::string, std::string> all = files;
  all["/proc/meminfo"] = kMachine;
  for (const auto& [path, text] : all) {
    const std::string file = root.path() + path;
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file) << text;
  }
  return ReadMachineMemory(root.path());
}

void Check(const MachineMemory& memory, size_t total, size_t available) {
  CHECK(memory.total == total);
  CHECK(memory.available == available);
}

TEST_CASE("without groups or limits it is the machine's") {
  Check(MemoryWith({}), 16 * kGiB, 8 * kGiB);
  Check(MemoryWith({{"/proc/self/cgroup", "0::/\n"},
                    {"/sys/fs/cgroup/memory.max", "max\n"},
                    {"/sys/fs/cgroup/memory.current", "1073741824\n"}}),
        16 * kGiB, 8 * kGiB);
  // Version 1 has a number for it.
  Check(MemoryWith({{"/proc/self/cgroup", "4:cpu,memory:/\n0::/\n"},
                    {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                     "9223372036854771712\n"},
                    {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"}}),
        16 * kGiB, 8 * kGiB);
}

TEST_CASE("a container's limit, less what it holds but files") {
  const std::string stat =
      "anon 1073741824\ninactive_file 2147483648\nactive_file 4096\n";
  Check(MemoryWith({{"/proc/self/cgroup", "0::/\n"},
                    {"/sys/fs/cgroup/memory.max", "4294967296\n"},
                    {"/sys/fs/cgroup/memory.current", "3221225472\n"},
                    {"/sys/fs/cgroup/memory.stat", stat}}),
        4 * kGiB, 3 * kGiB);
  Check(MemoryWith(
            {{"/proc/self/cgroup", "4:memory:/docker/ab\n1:cpu:/docker/ab\n"},
             {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"},
             {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n"},
             {"/sys/fs/cgroup/memory/memory.stat",
              "inactive_file 0\ntotal_inactive_file 1073741824\n"}}),
        4 * kGiB, 2 * kGiB);
}

TEST_CASE("the least of the groups on the way to the root counts") {
  const std::string group = "/sys/fs/cgroup/user/job";
  const std::map<std::string, std::string> files = {
      {"/proc/self/cgroup", "0::/user/job\n"},
      {group + "/memory.max", "6442450944\n"},
      {group + "/memory.current", "1073741824\n"},
      {"/sys/fs/cgroup/user/memory.max", "7516192768\n"},
      {"/sys/fs/cgroup/user/memory.current", "6442450944\n"}};
  Check(MemoryWith(files), 6 * kGiB, 1 * kGiB);
  // More than the limit is held, which was lowered: nothing is left.
  auto over = files;
  over[group + "/memory.current"] = "7000000000\n";
  Check(MemoryWith(over), 6 * kGiB, 0);
}

TEST_CASE("a machine that says nothing is not known") {
  const TemporaryFolder nothing;
  Check(ReadMachineMemory(nothing.path()), MachineMemory::kUnknown,
        MachineMemory::kUnknown);
}

}  // namespace
}  // namespace sluice
