#include "dist/net/shared_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sluice::dist {
namespace {

// That it cannot be sent is no news: the peer is gone, which who waits for it
// is told, or has as many bells unheard as fit.
void Ring(const Socket& bells) {
  const std::byte bell{1};
  (void)send(bells.descriptor(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

pollfd Park(const SharedLane& lane, bool* parked) {
  lane.ring->SetSleeps(true);
  *parked = true;
  return {lane.bells->descriptor(), POLLIN, 0};
}

// Where something has moved, before or after a sleep.
void Unpark(const SharedLane& lane, bool* parked) {
  if (!*parked) return;
  lane.ring->SetSleeps(false);
  *parked = false;
}

// Takes the bells, and hears whether there will be more. A peer that is gone
// without having heard all of its own is an error of the socket's.
void Hear(SharedLane& lane) {
  std::array<std::byte, 64> bells;
  const ssize_t n =
      recv(lane.bells->descriptor(), bells.data(), bells.size(), MSG_DONTWAIT);
  const bool nothing_yet =
      n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  lane.ended = n <= 0 && !nothing_yet;
}

}  // namespace

Result<bool> SharedOutgoing::Try() {
  if (to_.ended) return Closed(to_.bells->peer());
  const MutableBytes slot = to_.ring->Free();
  if (slot.empty()) return false;
  const Bytes next = left_.Next();
  const Bytes part = next.first(std::min(next.size(), slot.size()));
  std::memcpy(slot.data(), part.data(), part.size());
  if (to_.ring->Fill(part.size())) Ring(*to_.bells);
  left_.Advance(part.size());
  Unpark(to_, &parked_);
  return true;
}

pollfd SharedOutgoing::Park() {
  return dist::Park(to_, &parked_);
}
Status SharedOutgoing::Woken(short) {
  Hear(to_);
  return {};
}
std::string SharedOutgoing::Late() const {
  return LateOut(to_.bells->peer(), left_.moved(), left_.total());
}

Result<bool> SharedIncoming::Try() {
  // What the peer left before it ended is there when its end is.
  const bool ended = from_.ended;
  const Bytes part = from_.ring->Front();
  if (part.empty()) {
    if (ended) return Closed(from_.bells->peer());
    return false;
  }
  const MutableBytes place = to_.subspan(
      taken_, std::min(to_.size() - taken_, SharedRing::kSlotBytes));
  if (part.size() != place.size()) {
    return DataLoss(fmt::format("{} has sent {} bytes where {} were expected",
                                from_.bells->peer(), part.size(),
                                place.size()));
  }
  if (combine_) {
    combine_(place, part);
  } else {
    std::memcpy(place.data(), part.data(), part.size());
  }
  if (from_.ring->Pop()) Ring(*from_.bells);
  taken_ += part.size();
  Unpark(from_, &parked_);
  return true;
}

pollfd SharedIncoming::Park() {
  return dist::Park(from_, &parked_);
}
Status SharedIncoming::Woken(short) {
  Hear(from_);
  return {};
}
std::string SharedIncoming::Late() const {
  return LateIn(from_.bells->peer(), taken_, to_.size());
}

}  // namespace sluice::dist
