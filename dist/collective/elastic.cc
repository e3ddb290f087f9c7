// Groups of a job that goes on with those that are left of it, and with others
// that come (roster.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "dist/collective/forming.h"
#include "dist/collective/group.h"
#include "dist/membership/membership.h"
#include "dist/net/socket.h"
#include "engine/cpu_features.h"

namespace sluice::dist {
namespace {

// Where all processes are of one host.
constexpr char kHere[] = "127.0.0.1";

// What this process is in the next group, of what it was started as. Its rank
// is the size where it is not of that.
LaunchInfo InfoOf(const LaunchInfo& before, const Assembly& next) {
  LaunchInfo info = before;
  info.epoch = next.epoch;
  info.host = next.address;
  info.port = next.port;
  info.job_ranks = next.seats;
  info.job_size = before.size;
  info.job_local_size = before.local_size;
  info.size = static_cast<int>(next.seats.size());
  const auto own = std::find(next.seats.begin(), next.seats.end(), before.rank);
  info.rank = static_cast<int>(own - next.seats.begin());
  if (info.rank == info.size) return info;
  const auto hosts = next.hosts.begin();
  const int host = hosts[info.rank];
  info.local_rank =
      static_cast<int>(std::count(hosts, hosts + info.rank, host));
  info.local_size = static_cast<int>(std::count(hosts, next.hosts.end(), host));
  return info;
}

// Whether another has gone meanwhile, so that the rest is to meet once more.
bool OfOthers(const Status& error) {
  return error.code() == Code::kUnavailable ||
         error.code() == Code::kDeadlineExceeded;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::JoinElastic(const LaunchInfo& info,
                                                  const GroupOptions& options) {
  LaunchInfo kept = info;
  kept.roster_fd = -1;
  std::unique_ptr<Group> group(new Group(kept, options, {}));
  group->roster_ = std::make_unique<RosterMember>(
      Descriptor(info.roster_fd), LeaseOf(options.peer_timeout));
  SLUICE_RETURN_IF_ERROR(group->JoinOthers(/*done=*/-1));
  group->bytes_sent_ = 0;
  return group;
}

Status Group::JoinOthers(int64_t done) {
  Meeting meeting;
  meeting.build = fmt::format("{}/{}", SLUICE_VERSION, ChosenIsa());
  meeting.done = done;
  meeting.patience = options_.join_timeout;
  meeting.silence = LeaseOf(options_.peer_timeout);
  // All have just met: who is not heard now is gone, or stands still.
  GroupOptions forming = options_;
  forming.join_timeout = std::min(options_.join_timeout, options_.peer_timeout);
  meeting.why = broken_.message();
  const std::string here = info_.host.empty() ? kHere : info_.host;
  while (true) {
    std::optional<Listener> listener;
    SLUICE_ASSIGN_OR_RETURN(listener, Listener::OpenPreferring(
                                          here, info_.own_port, options_.note));
    meeting.port = listener->port();
    SLUICE_ASSIGN_OR_RETURN(const Assembly next, roster_->Meet(meeting));
    LaunchInfo info = InfoOf(info_, next);
    if (info.rank == info.size) {
      return DataLoss(
          fmt::format("the launcher has named a group without this process, {}",
                      info_.rank));
    }
    Status formed;
    Links links;
    if (info.size > 1) {
      if (info.rank == 0) {
        info.listen_fd = listener->Release();
      } else if (info.own_port != 0) {
        info.own_port = meeting.port;  // again, on the way to rank 0
      }
      listener.reset();
      Result<Links> ring = FormRing(info, forming, roster_->apart());
      formed = ring.status();
      if (ring.ok()) links = *std::move(ring);
    }
    if (formed.ok()) {
      rank_ = info.rank;
      size_ = info.size;
      local_rank_ = info.local_rank;
      local_size_ = info.local_size;
      formed = Begin(std::move(links));
    }
    if (formed.ok()) {
      roster_->SayIn();
      if (options_.joined) options_.joined(rank_);
      return {};
    }
    if (!OfOthers(formed)) return formed;
    meeting.why = formed.message();
  }
}

}  // namespace sluice::dist
