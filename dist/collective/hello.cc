#include "dist/collective/hello.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dist/collective/places.h"
#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

constexpr size_t kToken = 64, kVersion = 32, kNode = 64;
constexpr size_t kPayload = kHelloBytes - kFrameBytes;
constexpr size_t kMaxWaiting = 16;
constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(2);
constexpr char kIt[] = "it";
constexpr std::chrono::milliseconds kBetweenLines = std::chrono::seconds(1);

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

// "it: TLS: ..." is of whom the line is about anyway.
std::string_view WithoutIt(std::string_view text) {
  return text.starts_with("it: ") ? text.substr(4) : text;
}

}  // namespace

Result<HelloPacket> EncodeHello(const Hello& hello) {
  if (hello.token.size() > kToken || hello.version.size() > kVersion ||
      hello.address.size() > kAddressBytes || hello.node.size() > kNode) {
    return InvalidArgument(fmt::format(
        "a token of {} bytes, a version of {}, an address of {} and a host's "
        "name of {}: at most {}, {}, {} and {}",
        hello.token.size(), hello.version.size(), hello.address.size(),
        hello.node.size(), kToken, kVersion, kAddressBytes, kNode));
  }
  HelloPacket packet{};
  Frame frame;
  frame.kind = FrameKind::kHello;
  frame.rank = hello.rank;
  frame.epoch = hello.epoch;
  frame.key = hello.group;
  frame.count = static_cast<uint64_t>(hello.size);
  frame.bytes = kPayload;
  Encode(frame, std::span(packet).first<kFrameBytes>());
  std::byte* at = packet.data() + kFrameBytes;
  PutText(hello.token, kToken, &at);
  PutText(hello.version, kVersion, &at);
  PutText(hello.address, kAddressBytes, &at);
  Put(static_cast<uint32_t>(hello.port), &at);
  Put(static_cast<uint8_t>(hello.lane), &at);
  Put(static_cast<uint8_t>(hello.all_reduce), &at);
  Put(uint16_t{0}, &at);
  PutText(hello.node, kNode, &at);
  return packet;
}

Result<Hello> DecodeHello(const HelloPacket& packet) {
  SLUICE_ASSIGN_OR_RETURN(const Frame frame,
                          Decode(std::span(packet).first<kFrameBytes>()));
  if (frame.kind != FrameKind::kHello || frame.bytes != kPayload ||
      frame.count > INT32_MAX) {
    return DataLoss("no hello");
  }
  const std::byte* at = packet.data() + kFrameBytes;
  Hello hello;
  hello.rank = frame.rank;
  hello.epoch = frame.epoch;
  hello.group = frame.key;
  hello.size = static_cast<int>(frame.count);
  hello.token = TakeText(kToken, &at);
  hello.version = TakeText(kVersion, &at);
  hello.address = TakeText(kAddressBytes, &at);
  const auto port = Take<uint32_t>(&at);
  hello.lane = static_cast<Lane>(Take<uint8_t>(&at));
  hello.all_reduce = static_cast<Algorithm>(Take<uint8_t>(&at));
  (void)Take<uint16_t>(&at);  // zeros
  if (port > 65535 || hello.lane > Lane::kTask ||
      hello.all_reduce > Algorithm::kHierarchical) {
    return DataLoss("a hello that makes no sense");
  }
  hello.port = static_cast<int>(port);
  hello.node = TakeText(kNode, &at);
  return hello;
}

Status SendHello(const Hello& hello, Socket& to, Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(const HelloPacket packet, EncodeHello(hello));
  return to.Send(Bytes(packet), deadline);
}

Door::Door(Listener listener, Hello own, std::shared_ptr<const Tls> tls,
           std::function<void(std::string_view)> note,
           std::function<int(int rank)> certified)
    : listener_(std::move(listener)),
      own_(std::move(own)),
      tls_(std::move(tls)),
      note_(std::move(note)),
      certified_(std::move(certified)) {}

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

Status Door::Watch(Deadline deadline, std::span<const pollfd> also) {
  std::vector<pollfd> polled(also.begin(), also.end());
  for (const Waiting& one : waiting_) {
    const short events =
        one.greeted ? short{POLLIN} : one.socket.handshake_events();
    polled.push_back({one.socket.descriptor(), events, 0});
    deadline = std::min(deadline, one.until);
  }
  if (waiting_.size() < kMaxWaiting) {
    polled.push_back({listener_.descriptor(), POLLIN, 0});
  }
  if (Wait(polled, deadline) < 0) {
    return Unavailable(fmt::format("poll: {}", std::strerror(errno)));
  }
  const bool other = std::any_of(
      polled.begin(), polled.begin() + static_cast<std::ptrdiff_t>(also.size()),
      [](const pollfd& one) { return one.revents != 0; });
  return other ? Cancelled("something else has come first") : Status::Ok();
}

Status Door::TakeIn() {
  while (waiting_.size() < kMaxWaiting) {
    Result<Socket> socket = listener_.Accept(Deadline());
    if (!socket.ok()) {
      return socket.status().code() == Code::kDeadlineExceeded
                 ? Status::Ok()
                 : socket.status();
    }
    std::string name = socket->peer();
    Waiting one{*std::move(socket), std::move(name), After(kPatience)};
    one.socket.set_peer(kIt);  // in what is said of it
    one.greeted = tls_ == nullptr;
    if (tls_ != nullptr) {
      SLUICE_RETURN_IF_ERROR(one.socket.StartTls(*tls_, TlsSide::kListens));
    }
    waiting_.push_back(std::move(one));
  }
  return {};
}

Result<bool> Door::Hear(Waiting& one) const {
  if (!one.greeted) {
    SLUICE_ASSIGN_OR_RETURN(one.greeted, one.socket.Handshake());
  }
  while (one.greeted && one.arrived < kHelloBytes) {
    const iovec rest = {one.packet.data() + one.arrived,
                        kHelloBytes - one.arrived};
    SLUICE_ASSIGN_OR_RETURN(const size_t n, one.socket.TryReceive({&rest, 1}));
    if (n == 0) break;
    one.arrived += n;
    // What is no frame of ours does not become one by waiting for more.
    if (one.arrived >= kFrameBytes) {
      SLUICE_RETURN_IF_ERROR(
          Decode(std::span(one.packet).first<kFrameBytes>()).status());
    }
  }
  if (one.arrived == kHelloBytes) return true;
  if (std::chrono::steady_clock::now() >= one.until) {
    return DeadlineExceeded(fmt::format("{} has not said {} within 2 s",
                                        one.socket.peer(),
                                        one.greeted ? "hello" : "who it is"));
  }
  return false;
}

std::string Door::Objection(const Hello& hello, const Socket& from) const {
  if (!SameToken(hello.token, own_.token)) return "not the token of this job";
  if (hello.epoch != own_.epoch) {
    return fmt::format("it is of membership {}, this is {}", hello.epoch,
                       own_.epoch);
  }
  if ((hello.lane == Lane::kTask) != (own_.lane == Lane::kTask)) {
    return "this is a port of other connections";
  }
  if (hello.group != own_.group) return "it is of another group of this job";
  if (hello.size != own_.size || hello.rank >= own_.size) {
    return fmt::format("rank {} of a job of {}, but this one is of {}",
                       hello.rank, hello.size, own_.size);
  }
  if (!from.encrypted() || hello.lane == Lane::kTask) return {};
  const Identity& shown = from.peer_identity();
  const int rank = certified_ ? certified_(hello.rank) : hello.rank;
  if (shown.role == kWorkerRole && shown.rank == rank) return {};
  return fmt::format("it says that it is rank {}, its certificate is {}'s",
                     rank, shown.Name());
}

Result<Guest> Door::Admit(Deadline deadline, std::span<const pollfd> also) {
  while (true) {
    SLUICE_RETURN_IF_ERROR(TakeIn());
    for (size_t i = 0; i < waiting_.size();) {
      const Result<bool> heard = Hear(waiting_[i]);
      if (heard.ok() && !*heard) {
        ++i;
        continue;
      }
      Socket socket = std::move(waiting_[i].socket);
      const std::string name = waiting_[i].name;
      const HelloPacket packet = waiting_[i].packet;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!heard.ok()) {
        Refuse(name, WithoutIt(heard.status().message()));
        continue;
      }
      Result<Hello> hello = DecodeHello(packet);
      const std::string why =
          hello.ok() ? Objection(*hello, socket) : hello.status().message();
      if (!why.empty()) {
        Refuse(name, why);
        continue;
      }
      if (hello->version != own_.version) {
        if (own_.lane == Lane::kTask) {  // without ranks
          return FailedPrecondition(fmt::format("it is Sluice {}, this is {}",
                                                hello->version, own_.version));
        }
        return FailedPrecondition(
            fmt::format("rank {} is Sluice {}, rank {} is {}", hello->rank,
                        hello->version, own_.rank, own_.version));
      }
      socket.set_peer(name);
      return Guest{*std::move(hello), std::move(socket)};
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return DeadlineExceeded("nobody has come");
    }
    SLUICE_RETURN_IF_ERROR(Watch(deadline, also));
  }
}

}  // namespace sluice::dist
