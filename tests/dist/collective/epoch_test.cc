// Those of another membership of an elastic job are at the wrong door.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "dist/collective/hello.h"
#include "dist/net/socket.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

TEST_CASE(
    "who is of another membership is refused, who is of this one is not") {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const int port = listener.port();
  Hello own;
  own.size = 3;
  own.epoch = 4;
  own.token = std::string(64, '7');
  own.version = "1";
  std::vector<std::string> said;
  Door door(std::move(listener), own, nullptr,
            [&](std::string_view line) { said.emplace_back(line); });
  std::vector<Socket> kept;
  for (const uint32_t epoch : {3u, 5u, 4u}) {
    Hello hello = own;
    hello.rank = 1;
    hello.epoch = epoch;
    const Deadline soon = After(std::chrono::seconds(5));
    kept.push_back(Socket::Connect("127.0.0.1", port, soon).ValueOrThrow());
    ThrowIfError(SendHello(hello, kept.back(), soon));
  }
  const Guest guest = door.Admit(After(std::chrono::seconds(5))).ValueOrThrow();
  CHECK(guest.hello.epoch == 4);
  CHECK(guest.hello.rank == 1);
  CHECK(!door.Admit(After(std::chrono::milliseconds(1))).ok());
  REQUIRE(!said.empty());
  CHECK(sluice::testing::Contains(said[0], "it is of membership 3, this is 4"));
}

}  // namespace
}  // namespace sluice::dist
