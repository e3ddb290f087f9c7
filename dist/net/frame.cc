#include "dist/net/frame.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

constexpr uint32_t kMagic = 0x49554c53;  // "SLUI"

constexpr std::array<std::string_view, kNumFrameKinds> kKindNames = {
    "hello",   "peers",     "reduce", "mean",       "tree",
    "scatter", "broadcast", "gather", "all-to-all", "barrier",
    "join",    "error",     "memory", "beat",       "goodbye",
    "suspect", "verdict",   "tensor", "want",       "abort",
    "ping",    "call",      "answer", "run",        "ran"};

Status CheckSize(const Frame& frame) {
  if (frame.bytes > kMaxPayload) {
    return DataLoss(fmt::format("a frame of {} bytes, of which {} are allowed",
                                frame.bytes, kMaxPayload));
  }
  if (!frame.dtype) return {};
  // The division first: the product may not fit.
  const uint64_t size = SizeOf(*frame.dtype);
  if (frame.count > kMaxPayload / size || frame.count * size != frame.bytes) {
    return DataLoss(fmt::format("a frame of {} bytes for {}[{}]", frame.bytes,
                                NameOf(*frame.dtype), frame.count));
  }
  return {};
}

// "float32[100]", "bytes[100]"
std::string Contents(const Frame& frame) {
  return fmt::format("{}[{}]", frame.dtype ? NameOf(*frame.dtype) : "bytes",
                     frame.count);
}

// "reduce 7 of float32[100] (key 00000000075bcd15, epoch 2)"
std::string Described(const Frame& frame) {
  return fmt::format("{} {} of {} (key {:016x}, epoch {})", NameOf(frame.kind),
                     frame.run, Contents(frame), frame.key, frame.epoch);
}

}  // namespace

std::string_view NameOf(FrameKind kind) {
  const size_t index = static_cast<size_t>(kind) - 1;
  return index < kKindNames.size() ? kKindNames[index] : "unknown";
}

Frame FrameOf(FrameKind kind, DType dtype, uint64_t count) {
  Frame frame;
  frame.kind = kind;
  frame.dtype = dtype;
  frame.count = count;
  frame.bytes = count * SizeOf(dtype);
  return frame;
}

uint64_t Key(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

void Encode(const Frame& frame, std::span<std::byte, kFrameBytes> out) {
  SLUICE_CHECK(frame.rank >= 0 && CheckSize(frame).ok());
  std::byte* at = out.data();
  Put(kMagic, &at);
  Put(kFrameVersion, &at);
  Put(static_cast<uint8_t>(frame.kind), &at);
  Put(static_cast<uint8_t>(frame.dtype ? static_cast<int>(*frame.dtype) + 1
                                       : 0),
      &at);
  Put(static_cast<uint32_t>(frame.rank), &at);
  Put(frame.epoch, &at);
  Put(frame.run, &at);
  Put(frame.key, &at);
  Put(frame.count, &at);
  Put(frame.bytes, &at);
}

Result<Frame> Decode(std::span<const std::byte, kFrameBytes> in) {
  const std::byte* at = in.data();
  if (const auto magic = Take<uint32_t>(&at); magic != kMagic) {
    // As its bytes are in the stream: what speaks TLS or HTTP is recognised.
    return DataLoss(fmt::format(
        "no frame of sluice: it begins with {:02x}{:02x}{:02x}{:02x}, not "
        "534c5549",
        magic & 0xff, magic >> 8 & 0xff, magic >> 16 & 0xff, magic >> 24));
  }
  if (const auto version = Take<uint16_t>(&at); version != kFrameVersion) {
    return DataLoss(fmt::format(
        "a frame of version {}, not {}: processes of a job must run the same "
        "program",
        version, kFrameVersion));
  }
  const auto kind = Take<uint8_t>(&at);
  if (kind < 1 || kind > kNumFrameKinds) {
    return DataLoss(fmt::format("a frame of the unknown kind {}", kind));
  }
  const auto dtype = Take<uint8_t>(&at);
  if (dtype > kNumDTypes) {
    return DataLoss(fmt::format("a frame of the unknown dtype {}", dtype));
  }
  const auto rank = Take<uint32_t>(&at);
  if (rank > uint32_t{std::numeric_limits<int>::max()}) {
    return DataLoss(fmt::format("a frame of the impossible rank {}", rank));
  }
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  if (dtype > 0) frame.dtype = static_cast<DType>(dtype - 1);
  frame.rank = static_cast<int>(rank);
  frame.epoch = Take<uint32_t>(&at);
  frame.run = Take<uint64_t>(&at);
  frame.key = Take<uint64_t>(&at);
  frame.count = Take<uint64_t>(&at);
  frame.bytes = Take<uint64_t>(&at);
  SLUICE_RETURN_IF_ERROR(CheckSize(frame));
  return frame;
}

Status CheckSame(const Frame& wanted, const Frame& got, std::string_view peer) {
  std::vector<std::string_view> differ;
  if (got.epoch != wanted.epoch) differ.push_back("epoch");
  if (got.kind != wanted.kind) differ.push_back("kind");
  if (got.run != wanted.run) differ.push_back("order");
  if (got.key != wanted.key) differ.push_back("name");
  if (got.dtype != wanted.dtype) differ.push_back("dtype");
  if (got.count != wanted.count) differ.push_back("size");
  if (differ.empty()) return {};
  return FailedPrecondition(fmt::format(
      "{} sends {}, rank {} wants {}: another {}", peer, Described(got),
      wanted.rank, Described(wanted), fmt::join(differ, ", ")));
}

}  // namespace sluice::dist
