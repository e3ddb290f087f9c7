#include "dist/own_cores.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/affinity.h"
#include "engine/parse_number.h"
#include "engine/threads.h"

namespace sluice::dist {
namespace {

using CpuNumbers = std::vector<int>;  // ascending

// Empty where it is not set.
std::string_view Told(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// Nothing but digits.
std::optional<int> WholeNumber(std::string_view text, int base) {
  const auto value = ParseWhole<int>(text, base);
  return value && *value >= 0 ? value : std::nullopt;
}

// The bits of "0xc": 2 and 3. Empty where it is no mask.
CpuNumbers OfMask(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  CpuNumbers cpus;
  for (size_t i = text.size(); i > 0; --i) {
    const std::optional<int> bits = WholeNumber(text.substr(i - 1, 1), 16);
    if (!bits) return {};
    for (int bit = 0; bit < 4; ++bit) {
      if ((*bits >> bit & 1) == 0) continue;
      cpus.push_back(4 * static_cast<int>(text.size() - i) + bit);
    }
  }
  return cpus;
}

// Of map_cpu: "12", "0xc". Empty where it is none.
CpuNumbers OfCpu(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  const std::optional<int> cpu = WholeNumber(text, hexadecimal ? 16 : 10);
  return cpu ? CpuNumbers{*cpu} : CpuNumbers();
}

// What a node's tasks are bound to in turn, by SLURM_LOCALID: "0x3,0xc" or, of
// map_cpu, "0,1".
std::vector<CpuNumbers> OfTasks(std::string_view list, bool masks) {
  std::vector<CpuNumbers> tasks;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    tasks.push_back(masks ? OfMask(one) : OfCpu(one));
  }
  return tasks;
}

// How many of the node's tasks may run where this one may, by Slurm's word; 0:
// it says nothing, or this process has been bound to something else since.
int SharersOfSlurm(const CpuNumbers& own, int local_size) {
  // "mask_cpu:", "cores,mask_cpu:"
  const std::string_view type = Told("SLURM_CPU_BIND_TYPE");
  const bool masks = type.find("mask_cpu") != std::string_view::npos;
  if (!masks && type.find("map_cpu") == std::string_view::npos) return 0;
  const std::vector<CpuNumbers> tasks =
      OfTasks(Told("SLURM_CPU_BIND_LIST"), masks);
  const std::optional<int> local = WholeNumber(Told("SLURM_LOCALID"), 10);
  if (!local || tasks.empty()) return 0;
  const auto of = [&](int task) -> const CpuNumbers& {
    return tasks[static_cast<size_t>(task) % tasks.size()];
  };
  if (of(*local) != own) return 0;
  int sharers = 0;
  for (int task = 0; task < local_size; ++task) {
    const CpuNumbers& other = of(task);
    const auto shared =
        std::find_first_of(own.begin(), own.end(), other.begin(), other.end());
    if (shared != own.end()) ++sharers;
  }
  return std::max(1, sharers);  // a parameter server is none of these
}

}  // namespace

int OwnCores(bool pinned, int local_size) {
  const int cores = AvailableCores();
  const CpuNumbers own = CpusOf(0);
  if (pinned || local_size <= 1) return cores;
  // sluicerun, which says SLUICE_SIZE, may itself be in a job of the others.
  if (own.empty() || !Told("SLUICE_SIZE").empty()) return cores / local_size;
  if (!Told("OMPI_COMM_WORLD_SIZE").empty()) {
    const CpuNumbers all = CpusOf(getppid());
    if (!std::includes(all.begin(), all.end(), own.begin(), own.end())) {
      return cores / local_size;
    }
    return std::min(cores, static_cast<int>(all.size()) / local_size);
  }
  const int sharers = SharersOfSlurm(own, local_size);
  return cores / (sharers > 0 ? sharers : local_size);
}

}  // namespace sluice::dist
