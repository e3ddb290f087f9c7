#include "dist/membership/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace sluice::dist {
namespace {

constexpr size_t kMaxText = 2048;
// A peer that takes nothing does not make this one's memory grow.
constexpr size_t kMostWaiting = size_t{64} << 10;

bool HasReason(FrameKind kind) {
  return kind == FrameKind::kError || kind == FrameKind::kSuspect ||
         kind == FrameKind::kVerdict;
}

bool HasText(FrameKind kind) {
  return HasReason(kind) || kind == FrameKind::kBeat;
}

}  // namespace

std::string Encoded(const ControlMessage& message) {
  Frame frame;
  frame.kind = message.kind;
  frame.rank = message.rank;
  frame.epoch = message.epoch;
  std::string_view text;
  if (HasReason(message.kind)) {
    frame.run = static_cast<uint64_t>(message.whom);
    frame.count = static_cast<uint64_t>(message.reason.code());
    text = message.reason.message();
  } else if (message.kind == FrameKind::kBeat) {
    frame.run = message.run;
    text = message.waits_in;
  }
  text = text.substr(0, kMaxText);
  frame.bytes = text.size();
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  return std::string(reinterpret_cast<const char*>(header.data()),
                     header.size())
      .append(text);
}

Status ControlReader::Read(const Frame& frame, std::string_view text,
                           ControlMessage* out) const {
  const auto code = static_cast<Code>(frame.count);
  const bool beats = frame.kind == FrameKind::kBeat;
  if (frame.rank >= size_ ||
      (!beats && frame.run >= static_cast<uint64_t>(size_)) ||
      frame.count > static_cast<uint64_t>(Code::kInternal) ||
      HasReason(frame.kind) != (code != Code::kOk)) {
    return DataLoss(
        fmt::format("a message of {} that makes no sense", NameOf(frame.kind)));
  }
  out->kind = frame.kind;
  out->rank = frame.rank;
  out->epoch = frame.epoch;
  if (beats) {
    out->run = frame.run;
    out->waits_in = text;
  } else {
    out->whom = static_cast<int>(frame.run);
  }
  if (HasReason(frame.kind)) out->reason = Status(code, std::string(text));
  return {};
}

Status ControlReader::Add(std::string_view bytes,
                          std::vector<ControlMessage>* out) {
  bytes_.append(bytes);
  size_t at = 0;
  while (bytes_.size() - at >= kFrameBytes) {
    std::array<std::byte, kFrameBytes> header;
    std::memcpy(header.data(), bytes_.data() + at, kFrameBytes);
    SLUICE_ASSIGN_OR_RETURN(const Frame frame, Decode(header));
    const bool known = HasText(frame.kind) || frame.kind == FrameKind::kGoodbye;
    if (!known || frame.bytes > (HasText(frame.kind) ? kMaxText : 0)) {
      return DataLoss(
          fmt::format("a frame of {} and {} bytes where none "
                      "belongs",
                      NameOf(frame.kind), frame.bytes));
    }
    if (bytes_.size() - at < kFrameBytes + frame.bytes) break;
    ControlMessage message;
    SLUICE_RETURN_IF_ERROR(Read(
        frame, std::string_view(bytes_).substr(at + kFrameBytes, frame.bytes),
        &message));
    out->push_back(std::move(message));
    at += kFrameBytes + frame.bytes;
  }
  bytes_.erase(0, at);
  return {};
}

pollfd ControlChannel::Wanted() const {
  const short events =
      static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
  return {socket_.descriptor(), events, 0};
}

void ControlChannel::Say(const ControlMessage& message) {
  if (out_.size() < kMostWaiting) out_ += Encoded(message);
}

void ControlChannel::Beat(ControlMessage beat) {
  if (!out_.empty()) return;
  beat.kind = FrameKind::kBeat;
  Say(beat);
}

Status ControlChannel::Move(std::vector<ControlMessage>* in) {
  // What has come is heard also where nothing can be sent any more.
  Status status = Receive(in);
  const Status sent = Send();
  if (status.ok()) status = sent;
  if (!status.ok()) socket_ = Socket();
  return status;
}

Status ControlChannel::Send() {
  while (!out_.empty()) {
    const iovec piece = {out_.data(), out_.size()};
    SLUICE_ASSIGN_OR_RETURN(const size_t n, socket_.TrySend({&piece, 1}));
    if (n == 0) return {};
    out_.erase(0, n);
  }
  return {};
}

Status ControlChannel::Receive(std::vector<ControlMessage>* in) {
  std::array<char, 4096> bytes;
  const iovec room = {bytes.data(), bytes.size()};
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const size_t n, socket_.TryReceive({&room, 1}));
    if (n == 0) return {};
    SLUICE_RETURN_IF_ERROR(reader_.Add({bytes.data(), n}, in));
  }
}

}  // namespace sluice::dist
