#include "dist/membership/roster_keeper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "dist/membership/rank_name.h"
#include "engine/status.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenNotes = std::chrono::seconds(10);

}  // namespace

void RosterKeeper::Add(int rank, Descriptor socket, RosterHost host) {
  socket.MakePrivateAndNonBlocking();
  sockets_[rank] = std::move(socket);
  roster_.Started(rank, std::move(host));
  if (!over_.empty()) Tell(rank, "end " + over_);
}

void RosterKeeper::AddPolled(std::vector<pollfd>* polled) const {
  for (const auto& [rank, socket] : sockets_) {
    polled->push_back({socket.get(), POLLIN, 0});
  }
}

bool RosterKeeper::Hear(int rank, const Descriptor& socket) {
  std::vector<char> bytes(kRosterBytes);
  while (true) {
    const ssize_t n =
        recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    // How it has ended is known when it has.
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    roster_.Heard(rank);
    const std::string_view packet(bytes.data(), static_cast<size_t>(n));
    if (packet == "beat") continue;
    if (packet == kRosterIn) {
      roster_.Formed(rank);
      continue;
    }
    Result<Meeting> meeting = ParseMeeting(packet);
    if (meeting.ok()) {
      roster_.Meets(rank, *std::move(meeting));
    } else {
      say_(fmt::format("rank {}: {}", rank, meeting.status().message()));
    }
  }
}

void RosterKeeper::Tell(int rank, std::string_view packet) const {
  // One that is gone, or takes nothing, is noticed otherwise.
  const auto found = sockets_.find(rank);
  if (found == sockets_.end()) return;
  (void)send(found->second.get(), packet.data(), packet.size(),
             MSG_DONTWAIT | MSG_NOSIGNAL);
}

void RosterKeeper::Keep() {
  // Time in which this process did not run is nobody's silence.
  const Clock::time_point now = Clock::now();
  const auto passed = std::chrono::duration_cast<milliseconds>(now - kept_);
  kept_ += passed;
  // Who has closed it is not waited for: there always is something to read.
  std::erase_if(sockets_, [this](const auto& socket) {
    return !Hear(socket.first, socket.second);
  });
  roster_.Pass(std::min(passed, 2 * kTick));
  if (const auto begun = roster_.TakeGroup()) Announce(*begun);
  if (const auto called = roster_.TakeCall()) Tell(*called, "call");
  if (const auto first = roster_.TakeApart()) Tell(*first, "apart");
  if (roster_.verdict() && over_.empty()) {
    End(news_.empty() ? *roster_.verdict()
                      : fmt::format("{} ({})", *roster_.verdict(),
                                    fmt::join(news_, "; ")));
    if (roster_.Waiting().empty()) SayOver();  // nobody hears it
  }
  NoteMissing();
  for (const int rank : roster_.Silent()) {
    if (!doomed_.insert(rank).second) continue;
    if (roster_.verdict()) SayOver();
    say_(fmt::format("rank {} shows no sign of life, and is killed", rank));
    condemned_.push_back(rank);
  }
  for (const int rank : roster_.Unneeded()) {
    if (!doomed_.insert(rank).second) continue;
    unneeded_.insert(rank);
    const std::string differs = roster_.Differs(rank);
    Tell(rank, differs.empty() ? "end the others have ended"
                               : "end it cannot come in: " + differs);
    if (!differs.empty()) {
      say_(fmt::format("rank {} cannot come in: {}", rank, differs));
    }
    condemned_.push_back(rank);
  }
}

void RosterKeeper::NoteMissing() {
  const milliseconds waited = roster_.waited();
  if (waited < noted_) noted_ = milliseconds(0);
  if (waited < noted_ + kBetweenNotes || !over_.empty()) return;
  noted_ += kBetweenNotes;
  const std::vector<int> missing = roster_.Missing();
  if (missing.empty()) return;
  say_(fmt::format("{} {} been waited for for {} s", RankNames(missing),
                   missing.size() == 1 ? "has" : "have",
                   noted_ / std::chrono::seconds(1)));
}

void RosterKeeper::SayOver() {
  if (!std::exchange(said_over_, true)) say_(over_);
}

bool RosterKeeper::Ended(int rank, bool well, const std::string& how) {
  doomed_.erase(rank);
  // What it has said before.
  if (const auto found = sockets_.find(rank); found != sockets_.end()) {
    (void)Hear(rank, found->second);
    sockets_.erase(found);
  }
  roster_.Ended(rank, well);
  if (unneeded_.erase(rank) > 0) return true;
  if (!well) news_.push_back(how);
  return false;
}

void RosterKeeper::End(const std::string& why) {
  if (!over_.empty()) return;
  over_ = why;
  for (const auto& [rank, socket] : sockets_) Tell(rank, "end " + over_);
}

void RosterKeeper::Announce(const Roster::Begun& begun) {
  const uint32_t epoch = begun.assembly.epoch;
  const std::vector<int>& ranks = begun.assembly.seats;
  for (const int rank : ranks) Tell(rank, Encoded(begun.assembly));
  for (const int rank : begun.newcomers) {
    if (epoch > 1) news_.push_back(fmt::format("rank {} has come in", rank));
  }
  if (epoch > 1 || !news_.empty()) {
    if (news_.empty()) news_.push_back(begun.why);
    say_(fmt::format("{}; {} process{} go{} on from {} (membership {})",
                     fmt::join(news_, "; "), ranks.size(),
                     ranks.size() == 1 ? "" : "es",
                     ranks.size() == 1 ? "es" : "",
                     begun.done < 0 ? "what was saved last"
                                    : fmt::format("step {}", begun.done),
                     epoch));
  }
  news_.clear();
}

}  // namespace sluice::dist
