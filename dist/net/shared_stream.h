// The two directions of a ring of shared memory, as parts of an exchange.
//
// The socket beside the ring carries bells alone, a byte each: the sleeping end
// of a ring is woken by one, and by the end of a peer that is gone.
#ifndef SLUICE_DIST_NET_SHARED_STREAM_H_
#define SLUICE_DIST_NET_SHARED_STREAM_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "dist/net/exchange.h"
#include "dist/net/shared_ring.h"
#include "dist/net/socket.h"
#include "dist/net/stream.h"
#include "engine/status.h"

namespace sluice::dist {

// A ring and its bells: to one peer, or from one.
struct SharedLane {
  SharedRing* ring = nullptr;
  Socket* bells = nullptr;
  const Socket* pulse = nullptr;  // Direction::pulse
  bool ended = false;  // the peer is gone; the ring may still hold something
};

// Puts pieces into the ring, in parts of at most a slot, none of which is of
// two pieces.
class SharedOutgoing final : public Direction {
 public:
  // `to` and what `pieces` view must outlive this.
  SharedOutgoing(SharedLane& to, std::span<const Bytes> pieces)
      : to_(to), left_(pieces) {}

  bool done() const override { return left_.empty(); }
  Result<bool> Try() override;
  pollfd Park() override;
  Status Woken(short events) override;
  bool looks_again() const override { return true; }
  const Socket* pulse() const override { return to_.pulse; }
  std::string Late() const override;

 private:
  SharedLane& to_;
  Remaining<Bytes> left_;
  bool parked_ = false;
};

// Called with a part that has come, which is gone afterwards, and with the
// place that it is for.
using Combine = std::function<void(MutableBytes to, Bytes part)>;

// One piece out of the ring.
class SharedIncoming final : public Direction {
 public:
  // `combine` may be empty: parts are copied to their places.
  SharedIncoming(SharedLane& from, MutableBytes to, const Combine& combine)
      : from_(from), to_(to), combine_(combine) {}

  bool done() const override { return taken_ == to_.size(); }
  Result<bool> Try() override;
  pollfd Park() override;
  Status Woken(short events) override;
  bool looks_again() const override { return true; }
  const Socket* pulse() const override { return from_.pulse; }
  std::string Late() const override;

 private:
  SharedLane& from_;
  const MutableBytes to_;
  const Combine& combine_;
  size_t taken_ = 0;
  bool parked_ = false;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_SHARED_STREAM_H_
