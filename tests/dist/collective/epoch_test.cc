// Those of another membership of an elastic job are at the wrong door, and so
// are those of another part of a job, at a port that is opened for one part
// after another.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/collective/hello.h"
#include "dist/net/socket.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

Hello Own() {
  Hello own;
  own.size = 3;
  own.epoch = 4;
  own.group = 9;
  own.token = std::string(64, '7');
  own.version = "1";
  return own;
}

// The only one of these that a door with Own() lets in, and what it says first
// of the others.
Guest Admitted(const std::vector<Hello>& hellos, std::string* refusal) {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const int port = listener.port();
  std::vector<std::string> said;
  Door door(std::move(listener), Own(), nullptr,
            [&](std::string_view line) { said.emplace_back(line); });
  std::vector<Socket> kept;
  for (const Hello& hello : hellos) {
    const Deadline soon = After(std::chrono::seconds(5));
    kept.push_back(Socket::Connect("127.0.0.1", port, soon).ValueOrThrow());
    ThrowIfError(SendHello(hello, kept.back(), soon));
  }
  Guest guest = door.Admit(After(std::chrono::seconds(5))).ValueOrThrow();
  CHECK(!door.Admit(After(std::chrono::milliseconds(1))).ok());
  REQUIRE(!said.empty());
  *refusal = said[0];
  return guest;
}

TEST_CASE(
    "who is of another membership is refused, who is of this one is not") {
  std::vector<Hello> hellos;
  for (const uint32_t epoch : {3u, 5u, 4u}) {
    hellos.push_back(Own());
    hellos.back().rank = 1;
    hellos.back().epoch = epoch;
  }
  std::string refusal;
  const Guest guest = Admitted(hellos, &refusal);
  CHECK(guest.hello.epoch == 4);
  CHECK(guest.hello.rank == 1);
  CHECK(sluice::testing::Contains(refusal, "it is of membership 3, this is 4"));
}

TEST_CASE("who is of another part of the job is refused, too") {
  std::vector<Hello> hellos;
  for (const uint64_t group : {uint64_t{0}, uint64_t{1} << 63, uint64_t{9}}) {
    hellos.push_back(Own());
    hellos.back().rank = 2;
    hellos.back().group = group;
  }
  std::string refusal;
  const Guest guest = Admitted(hellos, &refusal);
  CHECK(guest.hello.group == 9);
  CHECK(guest.hello.rank == 2);
  CHECK(
      sluice::testing::Contains(refusal, "it is of another group of this job"));
}

}  // namespace
}  // namespace sluice::dist
