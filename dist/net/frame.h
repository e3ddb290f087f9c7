// The header of everything that travels between the processes of a job. Behind
// it follow its `bytes` of payload. 48 bytes, numbers little-endian:
//
//   offset  size
//        0     4  magic    "SLUI"
//        4     2  version  kFrameVersion
//        6     1  kind     FrameKind, from 1
//        7     1  dtype    engine/dtype.h's value + 1; 0: bytes of no dtype
//        8     4  rank     whose it is, below 2^31; others may pass it on (of a
//                          want 31 bits of Key() of the edge's name)
//       12     4  epoch    of the membership
//       16     8  run      the how manieth of its kind, or the run's number
//       24     8  key      Key() of the name of what travels
//       32     8  count    elements
//       40     8  bytes    of payload, at most kMaxPayload; with a dtype its
//                          size times count
//
// No two headers mean the same: what decodes encodes to the same bytes.
#ifndef SLUICE_DIST_NET_FRAME_H_
#define SLUICE_DIST_NET_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::dist {

inline constexpr size_t kFrameBytes = 48;
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint64_t kMaxPayload = uint64_t{1} << 40;

enum class FrameKind : uint8_t {
  kHello = 1,  // the first of a connection: who, and of which job
  kPeers,      // where the others listen
  kReduce,     // to the sum
  kMean,
  kTree,  // to the sum, in a tree's order
  kScatter,
  kBroadcast,
  kGather,
  kAllToAll,
  kBarrier,
  kJoin,    // no more data: dist/collective/join.cc
  kError,   // the payload says what has gone wrong
  kMemory,  // whether neighbours share some: dist/collective/sharing.h
  kBeat,    // and the others between members: dist/membership/control.h
  kGoodbye,
  kSuspect,
  kVerdict,
  // Between the tasks of a cluster (dist/rendezvous/, dist/cluster/). The run's
  // number is `run`.
  kTensor,  // `key`: the sender's incarnation, `count`: the edge
  kWant,    // of the same edge: there is a place for it
  kAbort,   // `count`: the code; the payload says why
  kPing,    // nothing but life
  kCall,    // `run`: its number; the payload says what
  kAnswer,  // to that call; `count`: the code
  kRun,     // a part of a step; `key`: which
  kRan,     // that run has ended; `count`: the code
};
inline constexpr int kNumFrameKinds = 25;
std::string_view NameOf(FrameKind kind);  // "hello", "reduce"

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::optional<DType> dtype;
  int rank = 0;
  uint32_t epoch = 0;
  uint64_t run = 0;
  uint64_t key = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;

  friend bool operator==(const Frame&, const Frame&) = default;
};

// A frame of `count` elements, with their bytes.
Frame FrameOf(FrameKind kind, DType dtype, uint64_t count);

// The 64-bit FNV-1a of a name: http://www.isthe.com/chongo/tech/comp/fnv
uint64_t Key(std::string_view name);

// Requires a frame that Decode would give.
void Encode(const Frame& frame, std::span<std::byte, kFrameBytes> out);
// kDataLoss saying what is wrong with it; any bytes may be given.
Result<Frame> Decode(std::span<const std::byte, kFrameBytes> in);

// Ok where both say the same but for the rank, and the bytes where there is no
// dtype: only the sender knows those. Else kFailedPrecondition that names both
// sides: `wanted` is this process's own, `peer` sent the other.
Status CheckSame(const Frame& wanted, const Frame& got, std::string_view peer);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_FRAME_H_
