#include "dist/collective/hello.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "dist/net/frame.h"
#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

constexpr size_t kToken = 64, kVersion = 32, kAddress = 64;
constexpr size_t kPayload = 168, kHello = kFrameBytes + kPayload;
constexpr size_t kMaxWaiting = 16;
constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(2);
constexpr std::chrono::milliseconds kMoment(
    5);  // between looks at those waiting
constexpr std::chrono::milliseconds kBetweenLines = std::chrono::seconds(1);

using Packet = std::array<std::byte, kHello>;

void PutText(const std::string& text, size_t size, std::byte* to) {
  std::memcpy(to, text.data(), std::min(text.size(), size));
}
std::string TakeText(const std::byte* from, size_t size) {
  std::string text(reinterpret_cast<const char*>(from), size);
  text.resize(std::min(text.find('\0'), size));
  return text;
}

Hello Parse(const Frame& frame, const std::byte* payload) {
  Hello hello;
  hello.rank = frame.rank;
  hello.size = static_cast<int>(std::min<uint64_t>(frame.count, INT32_MAX));
  hello.token = TakeText(payload, kToken);
  hello.version = TakeText(payload + 64, kVersion);
  hello.address = TakeText(payload + 96, kAddress);
  const std::byte* at = payload + 160;
  const auto port = Take<uint32_t>(&at);
  hello.port = port > 65535 ? -1 : static_cast<int>(port);
  hello.lane = static_cast<Lane>(payload[164]);
  return hello;
}

// In a time that does not tell how much of it is right.
bool SameToken(const std::string& a, const std::string& b) {
  std::array<char, kToken> x{}, y{};
  std::memcpy(x.data(), a.data(), std::min(a.size(), kToken));
  std::memcpy(y.data(), b.data(), std::min(b.size(), kToken));
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < kToken; ++i) {
    difference |= static_cast<unsigned char>(x[i] ^ y[i]);
  }
  return difference == 0;
}

// How many bytes of a hello have come; 0 where the peer has closed instead.
std::optional<size_t> Arrived(const Socket& socket, Packet& packet) {
  const ssize_t n = recv(socket.descriptor(), packet.data(), packet.size(),
                         MSG_PEEK | MSG_DONTWAIT);
  if (n >= 0) return static_cast<size_t>(n);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return 0;
}

// What is wrong with a hello, in words, or nothing.
std::string Objection(const Result<Frame>& frame, const Hello& hello,
                      const Hello& own) {
  if (!frame.ok()) return frame.status().message();
  if (frame->kind != FrameKind::kHello || frame->bytes != kPayload) {
    return "no hello";
  }
  if (!SameToken(hello.token, own.token)) return "not the token of this job";
  if (hello.size != own.size || hello.rank >= own.size) {
    return fmt::format("rank {} of a job of {}, but this one is of {}",
                       hello.rank, hello.size, own.size);
  }
  if (hello.port < 0 || hello.lane > Lane::kPulse) return "no sense";
  return {};
}

}  // namespace

Status SendHello(const Hello& hello, Socket& to, Deadline deadline) {
  if (hello.token.size() > kToken || hello.version.size() > kVersion ||
      hello.address.size() > kAddress) {
    return InvalidArgument(fmt::format(
        "a token of {} bytes, a version of {} and an address of {}: at most "
        "{}, {} and {}",
        hello.token.size(), hello.version.size(), hello.address.size(), kToken,
        kVersion, kAddress));
  }
  Packet packet{};
  Frame frame;
  frame.kind = FrameKind::kHello;
  frame.rank = hello.rank;
  frame.count = static_cast<uint64_t>(hello.size);
  frame.bytes = kPayload;
  Encode(frame, std::span(packet).first<kFrameBytes>());
  std::byte* const payload = packet.data() + kFrameBytes;
  PutText(hello.token, kToken, payload);
  PutText(hello.version, kVersion, payload + 64);
  PutText(hello.address, kAddress, payload + 96);
  std::byte* at = payload + 160;
  Put(static_cast<uint32_t>(hello.port), &at);
  payload[164] = static_cast<std::byte>(hello.lane);
  return to.Send(Bytes(packet), deadline);
}

Door::Door(Listener listener, Hello own,
           std::function<void(std::string_view)> note)
    : listener_(std::move(listener)),
      own_(std::move(own)),
      note_(std::move(note)) {}

void Door::Refuse(std::string_view who, std::string_view why) {
  if (!note_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < quiet_until_) {
    ++unsaid_;
    return;
  }
  quiet_until_ = now + kBetweenLines;
  std::string line = fmt::format("refused {}: {}", who, why);
  if (unsaid_ > 0) line += fmt::format(" ({} more before)", unsaid_);
  unsaid_ = 0;
  note_(line);
}

Status Door::TakeIn(Deadline deadline) {
  Deadline wait =
      waiting_.empty() ? deadline : std::min(deadline, After(kMoment));
  while (waiting_.size() < kMaxWaiting) {
    Result<Socket> socket = listener_.Accept(wait);
    if (!socket.ok()) {
      return socket.status().code() == Code::kDeadlineExceeded
                 ? Status::Ok()
                 : socket.status();
    }
    waiting_.push_back({*std::move(socket), After(kPatience)});
    wait = Deadline();  // those that are there already
  }
  std::this_thread::sleep_for(kMoment);
  return {};
}

Result<Guest> Door::Admit(Deadline deadline) {
  while (true) {
    SLUICE_RETURN_IF_ERROR(TakeIn(deadline));
    const Deadline now = std::chrono::steady_clock::now();
    for (size_t i = 0; i < waiting_.size();) {
      Packet packet;
      const std::optional<size_t> arrived = Arrived(waiting_[i].socket, packet);
      const bool ended = arrived == 0 || now >= waiting_[i].until;
      if (arrived != kHello && !ended) {
        ++i;
        continue;
      }
      Socket socket = std::move(waiting_[i].socket);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      if (arrived != kHello) {
        Refuse(socket.peer(), arrived == 0 ? "it has closed the connection"
                                           : "no hello within 2 s");
        continue;
      }
      const auto frame = Decode(std::span(packet).first<kFrameBytes>());
      Hello hello;
      if (frame.ok()) hello = Parse(*frame, packet.data() + kFrameBytes);
      if (const auto why = Objection(frame, hello, own_); !why.empty()) {
        Refuse(socket.peer(), why);
        continue;
      }
      if (hello.version != own_.version) {
        return FailedPrecondition(
            fmt::format("rank {} is Sluice {}, rank {} is {}", hello.rank,
                        hello.version, own_.rank, own_.version));
      }
      // It was only looked at.
      SLUICE_RETURN_IF_ERROR(socket.Receive(packet, now));
      return Guest{std::move(hello), std::move(socket)};
    }
    if (now >= deadline) return DeadlineExceeded("nobody has come");
  }
}

}  // namespace sluice::dist
