#include "models/cli/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dist/launch_info.h"
#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "models/cli/console.h"

namespace sluice {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

Job JoinJob(const JobFlags& flags, const std::string& log_dir) {
  Job job;
  std::optional<dist::LaunchInfo> info = dist::ReadLaunchInfo().ValueOrThrow();
  if (!info) return job;
  job.local_size = info->local_size;
  if (info->local_size > 1 && !info->pinned) {
    job.threads = std::max(1, AvailableCores() / info->local_size);
  }
  if (info->size == 1) return job;
  if (flags.strategy == "none") {
    if (log_dir.empty()) return job;
    throw Error(Code::kInvalidArgument,
                "--strategy none: each process trains by itself, and they "
                "cannot have one --log-dir");
  }
  dist::GroupOptions options;
  options.peer_timeout = Milliseconds(flags.peer_timeout);
  options.join_timeout = Milliseconds(flags.join_timeout);
  options.allow_plaintext = flags.allow_plaintext;
  options.transport = dist::ParseTransport(flags.transport).ValueOrThrow();
  options.overlap = dist::ParseOverlap(flags.overlap).ValueOrThrow();
  options.note = [](std::string_view line) { console::Note(line); };
  job.workers = dist::Group::Join(*std::move(info), options).ValueOrThrow();
  return job;
}

int Job::nodes() const {
  if (workers == nullptr) return 1;
  return CeilDiv(workers->size(), workers->local_size());
}

void RequireAlone() {
  const auto info = dist::ReadLaunchInfo().ValueOrThrow();
  if (!info || info->size == 1) return;
  throw Error(Code::kFailedPrecondition,
              fmt::format("this command is for one process, {} were started; "
                          "train is for several",
                          info->size));
}

void TellFailure(const Job& job, std::string_view message) {
  if (job.workers == nullptr) return;
  job.workers->Leave(Status(Code::kUnavailable, std::string(message)));
}

void EndTogether(const Job& job) {
  if (job.workers == nullptr) return;
  const bool all = job.workers->Barrier("done").ok();
  // That rank 0 does not come to this one says that it has ended.
  if (all && !job.leads()) (void)job.workers->Barrier("rank 0 ends").ok();
}

}  // namespace sluice
