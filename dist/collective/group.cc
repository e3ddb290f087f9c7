#include "dist/collective/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "dist/collective/forming.h"
#include "dist/own_cores.h"
#include "engine/threads.h"

namespace sluice::dist {
namespace {

Status CheckInfo(const LaunchInfo& info) {
  if (info.size < 1 || info.rank < 0 || info.rank >= info.size) {
    return InvalidArgument(
        fmt::format("there is no rank {} of {}", info.rank, info.size));
  }
  if (info.local_size < 1 || info.local_size > info.size) {
    return InvalidArgument(fmt::format("{} processes of {} on this host",
                                       info.local_size, info.size));
  }
  return {};
}

// Another descriptor of the same socket; or none.
int CopyOf(int descriptor) {
  return descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
}

}  // namespace

Group::Group(const LaunchInfo& info, const GroupOptions& options, Links links)
    : info_(info),
      options_(options),
      listener_(info.listen_fd),
      rank_(info.rank),
      size_(info.size),
      local_rank_(info.local_rank),
      local_size_(info.local_size),
      cores_(OwnCores(info.pinned, info.JobLocalSize())),
      peer_timeout_(options.peer_timeout),
      overlap_(options.overlap),
      links_(std::move(links)),
      queue_([this](const CollectiveCall& call) { return Do(call); }) {
  if (size_ > 1 && !links_.to.empty()) pulse_.emplace(links_.Pulses());
}

Group::~Group() = default;

std::unique_ptr<Group> Group::Alone() {
  return std::unique_ptr<Group>(new Group(LaunchInfo(), GroupOptions(), {}));
}

Result<std::unique_ptr<Group>> Group::Join(const LaunchInfo& info,
                                           const GroupOptions& options) {
  return Join(info, options, /*apart=*/-1);
}

Result<std::unique_ptr<Group>> Group::Join(const LaunchInfo& info,
                                           const GroupOptions& options,
                                           int apart) {
  SLUICE_RETURN_IF_ERROR(CheckInfo(info));
  if (info.roster_fd >= 0) return JoinElastic(info, options);
  Descriptor again;
  if (options.may_join_again) again = Descriptor(CopyOf(info.listen_fd));
  Links links;
  if (info.size > 1) {
    SLUICE_ASSIGN_OR_RETURN(links, FormRing(info, options, apart));
  } else if (info.listen_fd >= 0) {
    close(info.listen_fd);
  }
  LaunchInfo kept = info;
  kept.listen_fd = again.Release();
  std::unique_ptr<Group> group(new Group(kept, options, std::move(links)));
  // Not before the others are in too.
  SLUICE_RETURN_IF_ERROR(group->Barrier("join"));
  group->bytes_sent_ = 0;
  return group;
}

// The first error; what the others are told of it says which rank it is from.
Status Group::Break(std::string_view operation, std::string_view name,
                    Status error) {
  if (error.ok() || !broken_.ok()) return error;
  pulse_.reset();
  broken_ = Known(links_.Fail(error.WithContext(
      fmt::format("{} in {} '{}'", RankName(rank_, size_), operation, name))));
  return broken_;
}

void Group::Leave(const Status& failure) {
  for (const auto& [name, part] : parts_) part->Leave(failure);
  queue_.Finish();
  if (!broken_.ok() || (size_ == 1 && !elastic())) return;
  broken_ = Status(
      failure.code(),
      fmt::format("{} failed: {}", RankName(rank_, size_), failure.message()));
  pulse_.reset();
  if (size_ > 1) links_.Leave(broken_);
}

Status Group::JoinAgain(int64_t done) {
  if ((!options_.may_join_again && !elastic()) || !parts_.empty()) {
    return Collective::JoinAgain(done);
  }
  if (elastic()) return JoinOthers(done);
  if (size_ == 1) return {};
  LaunchInfo info = info_;
  info.listen_fd = CopyOf(listener_.get());
  SLUICE_ASSIGN_OR_RETURN(Links links, FormRing(info, options_));
  return Begin(std::move(links));
}

Status Group::Begin(Links links) {
  pulse_.reset();  // it beats on the old links
  queue_.Forget();
  links_ = std::move(links);
  broken_ = {};
  run_ = 0;
  frame_ = {};
  greeted_ = false;
  before_ = {};
  if (size_ > 1) pulse_.emplace(links_.Pulses());
  return Barrier("join again");
}

// Between processes of one host it is cores that move the bytes, and a thread
// without one of its own only takes turns with those that compute.
bool Group::Beside() const {
  if (overlap_ != Overlap::kAuto) return overlap_ == Overlap::kOn;
  return local_size_ < size_ || cores_ > ComputeThreads().threads();
}

}  // namespace sluice::dist
