// What a link receives: frames, and where their payloads land.
#include <poll.h>

#include <algorithm>
#include <array>

#include "dist/net/exchange.h"
#include "dist/rendezvous/link.h"

namespace sluice::dist {
namespace {

// Exchange listens for so long once more when time is up.
constexpr std::chrono::milliseconds kOnceMore(1000);
// Of a payload that goes to no ring, at a time: what a core's cache holds.
constexpr size_t kPiece = size_t{256} << 10;

// A stream's bytes to where they land.
class LandingIncoming final : public Direction {
 public:
  LandingIncoming(const Socket& from, Landing& landing, size_t begin,
                  size_t end)
      : from_(from), landing_(landing), taken_(begin), end_(end) {}

  bool done() const override { return taken_ == end_; }
  Result<bool> Try() override {
    MutableBytes place = landing_.Hold();
    if (place.empty()) {
      dropped_.resize(std::min(end_ - taken_, kPiece));
      place = dropped_;
    } else {
      place = place.subspan(taken_, end_ - taken_);
    }
    StreamIncoming in(from_, {&place, 1});
    Result<bool> moved = in.Try();
    taken_ += in.moved();
    landing_.Let();
    return moved;
  }
  pollfd Park() override { return {from_.descriptor(), POLLIN, 0}; }
  Status Woken(short) override { return {}; }
  std::string Late() const override {
    return LateIn(from_.peer(), taken_, end_);
  }

 private:
  const Socket& from_;
  Landing& landing_;
  size_t taken_;
  const size_t end_;
  std::vector<std::byte> dropped_;
};

}  // namespace

Status Link::Await(Direction& in, Spin* spin) {
  StreamOutgoing none(wires_.to.data, {});
  const auto patience = std::max(peer_timeout_ / 2, peer_timeout_ - kOnceMore);
  return Exchange(none, in, After(patience), spin);
}

Status Link::Receive(MutableBytes bytes) {
  if (in_lane_.ring != nullptr) {
    const Combine put;  // where it belongs
    SharedIncoming in(in_lane_, bytes, put);
    return Await(in);
  }
  while (!bytes.empty()) {
    MutableBytes piece = bytes.first(std::min(bytes.size(), kPiece));
    StreamIncoming in(wires_.from.data, {&piece, 1});
    SLUICE_RETURN_IF_ERROR(Await(in));
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status Link::Receive(size_t bytes, Landing& landing) {
  if (in_lane_.ring != nullptr) {
    // The ring asks only for offsets into the place.
    std::byte start{};
    size_t offset = 0;
    const Combine put = [&](MutableBytes, Bytes part) {
      const MutableBytes place = landing.Hold();
      if (!place.empty()) {
        std::copy(part.begin(), part.end(), place.subspan(offset).begin());
      }
      landing.Let();
      offset += part.size();
    };
    while (offset < bytes) {
      const size_t part = std::min(bytes - offset, SharedRing::kSlotBytes);
      SharedIncoming in(in_lane_, MutableBytes(&start, part), put);
      SLUICE_RETURN_IF_ERROR(Await(in, &filled_));
    }
    return {};
  }
  for (size_t begin = 0; begin < bytes;) {
    const size_t end = std::min(bytes, begin + kPiece);
    LandingIncoming in(wires_.from.data, landing, begin, end);
    SLUICE_RETURN_IF_ERROR(Await(in));
    begin = end;
  }
  return {};
}

Status Link::Drop(size_t bytes) {
  struct Nowhere final : Landing {
    MutableBytes Hold() override { return {}; }
    void Let() override {}
  } nowhere;
  return Receive(bytes, nowhere);
}

Status Link::ReadOne() {
  SLUICE_RETURN_IF_ERROR(AwaitAnswersTaken());
  std::array<std::byte, kFrameBytes> header;
  SLUICE_RETURN_IF_ERROR(Receive(header));
  SLUICE_ASSIGN_OR_RETURN(const Frame frame, Decode(header));
  if (frame.kind == FrameKind::kPing) return Drop(frame.bytes);
  return owner_.Take(*this, frame);
}

}  // namespace sluice::dist
