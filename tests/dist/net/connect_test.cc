// Hosts with several addresses, of which each has its own fault.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "dist/net/address.h"
#include "dist/net/socket.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

Deadline Limit() {
  return After(std::chrono::minutes(2));
}

Address Internet(const std::string& host, int port) {
  return Resolve(host, port).ValueOrThrow().front();
}

// To which there is no way, as while a network is down.
Address Unreachable() {
  return Internet("224.0.0.1", 4000);
}

// Of a kind that never will do, as IPv6 where a host has none: no such file.
Address Hopeless() {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::strcpy(local.sun_path, "/nonexistent/socket");
  Address address;
  std::memcpy(&address.storage, &local, sizeof(local));
  address.size = sizeof(local);
  return address;
}

// A port that is bound, so that it is nobody else's, and not listened at.
class Unheard {
 public:
  Unheard() : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    Address any = Internet("127.0.0.1", 0);
    REQUIRE(bind(descriptor_.get(), any.get(), any.size) == 0);
  }
  Address at() const {
    return LocalAddressOf(descriptor_.get()).ValueOrThrow();
  }

 private:
  const Descriptor descriptor_;
};

TEST_CASE("the address that may do in time is waited for") {
  for (const auto& addresses :
       {std::vector<Address>{Unreachable(), Hopeless()},
        std::vector<Address>{Hopeless(), Unreachable()}}) {
    for (const bool awaits : {false, true}) {
      const Status waited =
          Socket::ConnectToAny(addresses, "host", After(milliseconds(50)),
                               awaits)
              .status();
      CHECK(waited.code() == Code::kDeadlineExceeded);
      CHECK(waited.message() ==
            "cannot connect to host for so long: Network is unreachable");
    }
  }
  const Status hopeless =
      Socket::ConnectToAny({Hopeless()}, "host", Limit(), true).status();
  CHECK(hopeless.code() == Code::kUnavailable);
  CHECK(hopeless.message() ==
        "cannot connect to host: No such file or directory");
}

TEST_CASE("a host that refuses at one of its addresses is there") {
  const Unheard port;
  for (const auto& addresses :
       {std::vector<Address>{port.at(), Unreachable(), Hopeless()},
        std::vector<Address>{Hopeless(), Unreachable(), port.at()}}) {
    const Status gone =
        Socket::ConnectToAny(addresses, "host", Limit(), false).status();
    CHECK(gone.code() == Code::kUnavailable);
    CHECK(gone.message() == "cannot connect to host: nobody listens there");
    const Status awaited =
        Socket::ConnectToAny(addresses, "host", After(milliseconds(50)), true)
            .status();
    CHECK(awaited.code() == Code::kDeadlineExceeded);
  }
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const auto connected = Socket::ConnectToAny(
      {Hopeless(), port.at(), Internet("127.0.0.1", listener.port())}, "host",
      Limit(), false);
  REQUIRE(connected.ok());
  CHECK(connected->peer() == "127.0.0.1:" + std::to_string(listener.port()));
}

}  // namespace
}  // namespace sluice::dist
