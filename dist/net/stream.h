// The two directions of a stream, as parts of an exchange.
#ifndef SLUICE_DIST_NET_STREAM_H_
#define SLUICE_DIST_NET_STREAM_H_

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "dist/net/exchange.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// The pieces of one direction that are still to be moved.
template <typename Piece>
class Remaining {
 public:
  explicit Remaining(std::span<const Piece> pieces) : pieces_(pieces) {
    for (const Piece& piece : pieces) total_ += piece.size();
    Advance(0);
  }

  bool empty() const { return pieces_.empty(); }
  size_t moved() const { return moved_; }
  size_t total() const { return total_; }

  // The rest of the first piece that is not wholly moved. Requires !empty().
  Piece Next() const { return pieces_[0].subspan(offset_); }

  // The next pieces, as many as one system call takes (64 at most).
  std::span<const iovec> Vectors() {
    const size_t count = std::min(pieces_.size(), vectors_.size());
    for (size_t i = 0; i < count; ++i) {
      // sendmsg(2) only reads, for all that its struct is recvmsg(2)'s too.
      vectors_[i] = {const_cast<std::byte*>(pieces_[i].data()),
                     pieces_[i].size()};
    }
    vectors_[0].iov_base =
        static_cast<std::byte*>(vectors_[0].iov_base) + offset_;
    vectors_[0].iov_len -= offset_;
    return {vectors_.data(), count};
  }

  // Counts `bytes` as moved. Leaves a first piece with bytes to move, or none.
  void Advance(size_t bytes) {
    moved_ += bytes;
    offset_ += bytes;
    while (!pieces_.empty() && offset_ >= pieces_[0].size()) {
      offset_ -= pieces_[0].size();
      pieces_ = pieces_.subspan(1);
    }
  }

 private:
  std::span<const Piece> pieces_;
  size_t offset_ = 0;  // within the first
  size_t moved_ = 0;   // bytes
  size_t total_ = 0;
  std::array<iovec, 64> vectors_;
};

// A stream takes bytes, as many as it likes at a time.
class StreamOutgoing final : public Direction {
 public:
  // `to` and what `pieces` view must outlive this; the socket is connected
  // where there are bytes.
  StreamOutgoing(const Socket& to, std::span<const Bytes> pieces,
                 const Socket* pulse = nullptr)
      : to_(to), left_(pieces), pulse_(pulse) {}

  bool done() const override { return left_.empty(); }
  Result<bool> Try() override;
  pollfd Park() override { return {to_.descriptor(), POLLOUT, 0}; }
  Status Woken(short) override { return {}; }  // the next try says
  const Socket* pulse() const override { return pulse_; }
  std::string Late() const override;

 private:
  const Socket& to_;
  Remaining<Bytes> left_;
  const Socket* const pulse_;
};

class StreamIncoming final : public Direction {
 public:
  StreamIncoming(const Socket& from, std::span<const MutableBytes> pieces,
                 const Socket* pulse = nullptr)
      : from_(from), left_(pieces), pulse_(pulse) {}

  bool done() const override { return left_.empty(); }
  size_t moved() const { return left_.moved(); }
  Result<bool> Try() override;
  pollfd Park() override { return {from_.descriptor(), POLLIN, 0}; }
  Status Woken(short) override { return {}; }
  const Socket* pulse() const override { return pulse_; }
  std::string Late() const override;

 private:
  const Socket& from_;
  Remaining<MutableBytes> left_;
  const Socket* const pulse_;
};

// The errors of any direction for a peer that has closed, and for a call's
// errno. Failure is ok where the call is only not yet possible.
Status Closed(const std::string& peer);
Status Failure(int error, const std::string& peer);
// "rank 1 of 2 takes nothing for so long: 3 of 5 bytes sent", "nothing from
// ..."
std::string LateOut(const std::string& peer, size_t moved, size_t total);
std::string LateIn(const std::string& peer, size_t moved, size_t total);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_STREAM_H_
