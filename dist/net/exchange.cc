#include "dist/net/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "dist/net/socket.h"
#include "engine/pause.h"

namespace sluice::dist {
namespace {

// After a deadline: for peers that were stopped and continued with this one,
// and long enough to feel the pulse of others (dist/membership/pulse.h).
constexpr std::chrono::milliseconds kOnceMore(1000);
// To sleep and be woken takes about as long, and the peer's core is then free
// for whoever else has work.
constexpr std::chrono::microseconds kSpin(40);

Result<bool> TryBoth(Direction& out, Direction& in) {
  bool moved = false;
  if (!out.done()) {
    SLUICE_ASSIGN_OR_RETURN(moved, out.Try());
  }
  if (!in.done()) {
    SLUICE_ASSIGN_OR_RETURN(const bool received, in.Try());
    moved = moved || received;
  }
  return moved;
}

// What the two ends of an exchange wait for, and for which of its directions.
class Waiting {
 public:
  Waiting(Direction& out, Direction& in) {
    for (Direction* direction : {&out, &in}) {
      if (direction->done()) continue;
      whose_[count_] = direction;
      polled_[count_++] = direction->Park();
    }
  }

  // How many can move on; none where the deadline has passed.
  Result<int> Until(Deadline deadline) {
    return Poll({polled_.data(), count_}, deadline);
  }
  // Time is up. The same, or 0 where those who are waited for are alive and
  // only busy; an error that names those who are not. It takes a while in any
  // case: where this process itself stood still, what has come since is there.
  Result<int> Listen() {
    std::array<bool, 2> alive{};
    for (size_t i = 0; i < count_; ++i) {
      const Socket* const pulse = whose_[i]->pulse();
      polled_[count_ + i] = {pulse == nullptr ? -1 : pulse->descriptor(),
                             POLLIN, 0};
      Hears(pulse);  // what came earlier says nothing
    }
    const Deadline end = After(kOnceMore);
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const int ready,
                              Poll({polled_.data(), 2 * count_}, end));
      if (ready == 0) return Late(alive);
      int can_move = 0;
      for (size_t i = 0; i < count_; ++i) {
        if (polled_[i].revents != 0) ++can_move;
        pollfd& pulse = polled_[count_ + i];
        if (pulse.revents == 0) continue;
        alive[i] = Hears(whose_[i]->pulse()) || alive[i];
        pulse.fd = -1;  // heard once, or never again
      }
      if (can_move > 0) return can_move;
      if (std::count(alive.begin(), alive.end(), true) ==
          static_cast<std::ptrdiff_t>(count_)) {
        return 0;
      }
    }
  }
  Status Wake() {
    for (size_t i = 0; i < count_; ++i) {
      if (polled_[i].revents == 0) continue;
      SLUICE_RETURN_IF_ERROR(whose_[i]->Woken(polled_[i].revents));
    }
    return {};
  }

 private:
  static Result<int> Poll(std::span<pollfd> polled, Deadline deadline) {
    const int ready = Wait(polled, deadline);
    if (ready >= 0) return ready;
    return Unavailable(fmt::format("poll: {}", std::strerror(errno)));
  }
  // Takes what there is of a pulse: whether that was anything.
  static bool Hears(const Socket* pulse) {
    std::array<std::byte, 256> beats;
    const iovec room = {beats.data(), beats.size()};
    bool any = false;
    while (pulse != nullptr && pulse->connected()) {
      const Result<size_t> heard = pulse->TryReceive({&room, 1});
      if (!heard.ok() || *heard == 0) break;
      any = true;
    }
    return any;
  }
  Status Late(const std::array<bool, 2>& alive) const {
    std::string late;
    for (size_t i = count_; i-- > 0;) {  // whom this one receives from first
      if (alive[i]) continue;
      late += (late.empty() ? "" : "; ") + whose_[i]->Late();
    }
    return DeadlineExceeded(late);
  }

  std::array<Direction*, 2> whose_{};
  std::array<pollfd, 4> polled_{};  // theirs, then their pulses
  size_t count_ = 0;
};

// Until something can be moved or has ended, or only time has passed.
Status Sleep(Direction& out, Direction& in, Deadline* deadline,
             Deadline::duration again) {
  Waiting waiting(out, in);
  if (out.looks_again() || in.looks_again()) {
    SLUICE_ASSIGN_OR_RETURN(const bool moved, TryBoth(out, in));
    if (moved) return {};
  }
  SLUICE_ASSIGN_OR_RETURN(int ready, waiting.Until(*deadline));
  if (ready == 0) {
    SLUICE_ASSIGN_OR_RETURN(ready, waiting.Listen());
    if (ready == 0) {
      *deadline = std::chrono::steady_clock::now() + again;
      return {};
    }
  }
  return waiting.Wake();
}

}  // namespace

Result<bool> Spin::Look(const std::function<Result<bool>()>& look) {
  if (!Worthwhile()) return false;
  const Deadline end = std::chrono::steady_clock::now() + kSpin;
  bool found = false;
  do {
    // What the clock costs is more than a look.
    for (int i = 0; i < 8 && !found; ++i) {
      Pause();
      SLUICE_ASSIGN_OR_RETURN(found, look());
    }
  } while (!found && std::chrono::steady_clock::now() < end);
  misses_ = found ? 0 : misses_ + 1;
  return found;
}

Status Exchange(Direction& out, Direction& in, Deadline deadline, Spin* spin) {
  // How long the caller waits, to be given again. Of a deadline that has passed
  // only that: the time since may be longer than a duration holds.
  const Deadline now = std::chrono::steady_clock::now();
  const auto again =
      deadline > now ? deadline - now : Deadline::duration::zero();
  while (!out.done() || !in.done()) {
    SLUICE_ASSIGN_OR_RETURN(bool moved, TryBoth(out, in));
    if (!moved && spin != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(moved,
                              spin->Look([&] { return TryBoth(out, in); }));
    }
    if (moved) continue;
    SLUICE_RETURN_IF_ERROR(Sleep(out, in, &deadline, again));
  }
  return {};
}

}  // namespace sluice::dist
