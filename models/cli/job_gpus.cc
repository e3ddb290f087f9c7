// Jobs whose steps meet on their GPUs.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dist/collective/group.h"
#include "dist/nccl/nccl_group.h"
#include "engine/device.h"
#include "engine/device_group.h"
#include "models/cli/console.h"
#include "models/cli/job.h"

namespace sluice {
namespace {

// Empty: nothing is against it.
std::string WhyNot(const JobFlags& flags, const DeviceName& device,
                   bool virtual_workers, const Job& job) {
  if (device.type != DeviceType::kCuda) {
    return fmt::format(
        "it is from GPU to GPU, and the steps are on {}; give "
        "--device /gpu",
        device.ToString());
  }
  if (!flags.strategy.empty() && flags.strategy != "ring") {
    return fmt::format("it is for --strategy ring, not {}", flags.strategy);
  }
  if (flags.pipeline_stages > 1) return "not with --pipeline-stages";
  if (virtual_workers) {
    return "--virtual-workers are added up in a tree's order, which NCCL does "
           "not know; leave one of them away";
  }
  if (flags.deterministic) {
    return "--deterministic promises an order of sums, and NCCL none; leave "
           "one of them away";
  }
  if (flags.all_reduce != "auto") {
    return fmt::format("--all-reduce {}: NCCL chooses by itself",
                       flags.all_reduce);
  }
  if (job.workers != nullptr && job.workers->elastic()) {
    return "a job of GPUs that NCCL has connected cannot go on without one; "
           "not with --elastic";
  }
  return "";
}

}  // namespace

void MeetOnGpus(const JobFlags& flags, const std::string& device,
                bool virtual_workers, Job* job) {
  const DeviceName name = ParseDeviceName(device).ValueOrThrow();
  const std::string why_not = WhyNot(flags, name, virtual_workers, *job);
  if (!why_not.empty()) {
    throw Error(Code::kInvalidArgument, "--transport nccl: " + why_not);
  }
  if (job->workers == nullptr) return;  // it meets nobody
  const auto host = std::dynamic_pointer_cast<dist::Group>(job->workers);
  SLUICE_CHECK(host != nullptr);
  const Result<const DeviceGroups*> nccl = FindDeviceGroups(name.type);
  if (!nccl.ok()) {
    host->Leave(nccl.status());
    throw Error(nccl.status().WithContext("--transport nccl"));
  }
  constexpr std::string_view kWatch = "nccl";
  ThrowIfError(host->Split(kWatch, /*color=*/0));
  dist::NcclGroup::Options options;
  options.watch = host->Subgroup(kWatch);
  options.device = name.index;
  options.local_size = job->local_size;
  options.allow_plaintext = flags.allow_plaintext;
  options.beside = flags.overlap != "off";
  options.join_timeout = Milliseconds(flags.join_timeout);
  options.abort_timeout = Milliseconds(flags.peer_timeout);
  options.give_up = [](std::string_view line) {
    console::Note(line);
    std::_Exit(EXIT_FAILURE);
  };
  job->workers = dist::NcclGroup::Join(host, **nccl, options).ValueOrThrow();
}

}  // namespace sluice
