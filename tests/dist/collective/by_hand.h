// A rank that the test plays, as far into a job as it wants to.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_BY_HAND_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_BY_HAND_H_

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "dist/collective/hello.h"
#include "dist/launch_info.h"
#include "dist/net/frame.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::dist::testing {

// What it waits for has a limit, which is an error.
class ByHand {
 public:
  explicit ByHand(const LaunchInfo& info)
      : info_(info), listener_(Listener::Open("127.0.0.1").ValueOrThrow()) {}

  // To rank 0, with where it listens itself.
  void SayHello() {
    control_ = Socket::Connect(info_.host, info_.port, Limit()).ValueOrThrow();
    if (info_.credentials) {
      tls_ = Tls::Create(*info_.credentials).ValueOrThrow();
      ThrowIfError(control_.AwaitTls(*tls_, TlsSide::kConnects, Limit()));
    }
    Hello hello;
    hello.rank = info_.rank;
    hello.size = info_.size;
    hello.epoch = info_.epoch;
    hello.token = info_.token;
    hello.version = SLUICE_VERSION;
    hello.address = "127.0.0.1";
    hello.port = listener_->port();
    ThrowIfError(SendHello(hello, control_, Limit()));
  }
  // That all are there, and where.
  void HearPlaces() {
    std::array<std::byte, kFrameBytes> header;
    ThrowIfError(control_.Receive(header, Limit()));
    const Frame frame = Decode(header).ValueOrThrow();
    REQUIRE(frame.kind == FrameKind::kPeers);
    std::vector<std::byte> places(frame.bytes);
    ThrowIfError(control_.Receive(places, Limit()));
  }
  // That rank 0 has connected to all that it is to: its coordinator's first
  // beat.
  void HearCoordinator() {
    std::byte first{};
    ThrowIfError(control_.Receive({&first, 1}, Limit()));
  }
  // As when its process dies.
  void Close() {
    control_ = Socket();
    listener_.reset();
  }

 private:
  static Deadline Limit() { return After(std::chrono::seconds(50)); }

  const LaunchInfo info_;
  std::optional<Listener> listener_;
  std::shared_ptr<const Tls> tls_;
  Socket control_;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_BY_HAND_H_
