#include "dist/membership/leases.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "dist/membership/rank_name.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

// How long a suspicion waits for the end that explains it.
constexpr milliseconds kGrace(1000);
// Who has been silent for so long, several beats, may yet be lost.
constexpr milliseconds kQuiet(600);

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

}  // namespace

Leases::Leases(int size, milliseconds lease, milliseconds first)
    : lease_(lease), members_(At(size)) {
  for (Member& member : members_) member.silent = lease - first;
}

void Leases::Decide(Status status) {
  if (!verdict_) verdict_ = std::move(status);
}

void Leases::Heard(int rank) {
  members_[At(rank)].silent = milliseconds(0);
}

void Leases::Ended(int rank, milliseconds stood) {
  if (members_[At(rank)].left) return;
  const int size = static_cast<int>(members_.size());
  const std::string ended = RankName(rank, size) + " has ended";
  // Others count from its last beat, which was before it stood still.
  if (stood < lease_ * 5 / 6) return Decide(Unavailable(ended));
  Decide(
      DeadlineExceeded(fmt::format("{}, which coordinates the job, stood "
                                   "still for {} ms, in which {}",
                                   RankName(0, size), stood.count(), ended)));
}

void Leases::Left(int rank) {
  members_[At(rank)].left = true;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].suspects == rank) DecideSuspicion(static_cast<int>(i));
  }
}

void Leases::Failed(int, Status why) {
  Decide(std::move(why));
}

void Leases::Suspects(int rank, int whom, Status why) {
  Member& member = members_[At(rank)];
  if (member.suspects >= 0) return;
  member.suspects = whom;
  member.why = std::move(why);
  if (members_[At(whom)].left) DecideSuspicion(rank);
}

void Leases::Pass(milliseconds time) {
  const int size = static_cast<int>(members_.size());
  for (int rank = 0; rank < size; ++rank) {
    Member& member = members_[At(rank)];
    if (member.left) continue;
    member.silent += time;
    if (member.silent >= lease_) {
      Decide(
          DeadlineExceeded(fmt::format("{} has shown no sign of life for {} ms",
                                       RankName(rank, size), lease_.count())));
    }
  }
  for (int rank = 0; rank < size && !verdict_; ++rank) {
    Member& member = members_[At(rank)];
    if (member.suspects < 0) continue;
    member.since += time;
    if (member.since >= kGrace) DecideSuspicion(rank);
  }
}

// Who is suspected may itself be stuck for another: the last of that row is the
// one that cannot go on for a reason nobody else has. In a circle of two the
// first that spoke is as right as any.
void Leases::DecideSuspicion(int rank) {
  const int size = static_cast<int>(members_.size());
  for (int hops = 0; hops < size; ++hops) {
    const int next = members_[At(rank)].suspects;
    if (members_[At(next)].suspects < 0 || members_[At(next)].left) break;
    rank = next;
  }
  const Member& member = members_[At(rank)];
  const int whom = member.suspects;
  if (members_[At(whom)].left) {
    Decide(
        Unavailable(fmt::format("{} has left the job", RankName(whom, size))));
    return;
  }
  if (members_[At(whom)].silent >= kQuiet) return;  // its lease says more
  Decide(Status(member.why.code(),
                fmt::format("{} cannot reach {}, though both are alive: {}",
                            RankName(rank, size), RankName(whom, size),
                            member.why.message())));
}

}  // namespace sluice::dist
