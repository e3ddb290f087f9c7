#include "dist/own_cores.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace sluice::dist {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr const char* kNames[] = {
    "SLUICE_SIZE",         "OMPI_COMM_WORLD_SIZE", "SLURM_LOCALID",
    "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST",  "OMPI_COMM_WORLD_RANK"};

int With(const Variables& variables, int local_size, bool pinned = false) {
  for (const char* name : kNames) unsetenv(name);
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  const int cores = OwnCores(pinned, local_size);
  for (const char* name : kNames) unsetenv(name);
  return cores;
}

// What this thread may run on, ascending.
std::vector<int> Own() {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof(set), &set) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// As Slurm writes it.
std::string Mask(const std::vector<int>& cpus) {
  const int last = *std::max_element(cpus.begin(), cpus.end());
  std::string digits;
  for (int first = last / 4 * 4; first >= 0; first -= 4) {
    int digit = 0;
    for (const int cpu : cpus) {
      if (cpu / 4 == first / 4) digit |= 1 << cpu % 4;
    }
    digits += fmt::format("{:X}", digit);
  }
  return "0x" + digits;
}

Variables Slurm(int local, const std::string& type,
                const std::vector<std::string>& list) {
  return {{"SLURM_LOCALID", std::to_string(local)},
          {"SLURM_CPU_BIND_TYPE", type},
          {"SLURM_CPU_BIND_LIST", fmt::format("{}", fmt::join(list, ","))}};
}

TEST_CASE("processes that nobody has bound share what each may run on") {
  const int cores = static_cast<int>(Own().size());
  for (const int beside : {1, 2, 3}) {
    CHECK(With({}, beside) == cores / beside);
    CHECK(With({}, beside, /*pinned=*/true) == cores);
    // A cpuset, or what taskset has bound all to, is no machine.
    CHECK(With({{"SLUICE_SIZE", "4"}}, beside) == cores / beside);
  }
  CHECK(With({}, cores + 1) == 0);
}

TEST_CASE("Slurm's tasks have their own cores, or share them") {
  const std::vector<int> cpus = Own();
  const int cores = static_cast<int>(cpus.size());
  const std::string own = Mask(cpus), other = Mask({cpus.back() + 1});
  const std::string other_too = Mask({cpus.back() + 5, cpus.back() + 6});
  for (const char* type : {"mask_cpu:", "cores,mask_cpu:"}) {
    // srun -c of four tasks: each its own, which are not divided once more.
    CHECK(With(Slurm(0, type, {own, other, other_too, other}), 4) == cores);
    CHECK(With(Slurm(1, type, {other, own}), 2) == cores);
    // One mask for all, of the job's CPUs: none is bound.
    CHECK(With(Slurm(1, type, {own}), 3) == cores / 3);
    // Two tasks of each socket; and two of a list that is shorter than they.
    CHECK(With(Slurm(2, type, {own, other, own, other}), 4) == cores / 2);
    CHECK(With(Slurm(2, type, {own, other}), 4) == cores / 2);
    // A parameter server behind the node's two workers.
    CHECK(With(Slurm(2, type, {other, other_too, own}), 2) == cores);
  }
  // Not what Slurm had bound it to.
  CHECK(With(Slurm(0, "mask_cpu:", {other, own}), 2) == cores / 2);
  for (const char* list : {"", ",", "0xg", "x"}) {
    CHECK(With(Slurm(0, "mask_cpu:", {list}), 2) == cores / 2);
  }
  CHECK(With(Slurm(0, "none", {""}), 2) == cores / 2);
  // sluicerun has started it, in a shell that srun has opened.
  Variables nested = Slurm(0, "mask_cpu:", {own, other});
  nested["SLUICE_SIZE"] = "2";
  CHECK(With(nested, 2) == cores / 2);
}

// On a thread, which may bind itself as a launcher binds a process.
TEST_CASE("one that is bound to a core has it to itself") {
  const std::vector<int> cpus = Own();
  const int cores = static_cast<int>(cpus.size());
  int alone = -1, by_map = -1, by_mpi = -1, oversubscribed = -1;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cpus.back()), &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) return;
    alone = With({}, 2);
    by_map = With(Slurm(1, "map_cpu:",
                        {std::to_string(cpus.back() + 1),
                         fmt::format("0x{:x}", cpus.back())}),
                  2);
    const Variables mpi = {{"OMPI_COMM_WORLD_SIZE", "2"}};
    by_mpi = With(mpi, 2);
    oversubscribed = With(mpi, 4096);
  }).join();
  CHECK(alone == 0);
  CHECK(by_map == 1);
  // Who starts this test is bound no more than the test is.
  if (cores >= 2) CHECK(by_mpi == 1);
  CHECK(oversubscribed == 0);
}

}  // namespace
}  // namespace sluice::dist
