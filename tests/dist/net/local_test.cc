#include "dist/net/local.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::dist {
namespace {

Deadline Limit() {
  return After(std::chrono::minutes(1));
}

TEST_CASE("RandomWord: 32 hexadecimal digits, never the same") {
  std::set<std::string> words;
  for (int i = 0; i < 100; ++i) {
    const std::string word = RandomWord().ValueOrThrow();
    CHECK(word.size() == 32);
    CHECK(word.find_first_not_of("0123456789abcdef") == std::string::npos);
    words.insert(word);
  }
  CHECK(words.size() == 100);
}

TEST_CASE("processes of a host meet and hand over a descriptor") {
  const std::string name = RandomWord().ValueOrThrow();
  CHECK(ConnectLocally(name).status().code() == Code::kUnavailable);
  Listener listener = ListenLocally(name).ValueOrThrow();
  CHECK_FALSE(ListenLocally(name).ok());  // it is taken
  Socket here = ConnectLocally(name).ValueOrThrow();
  Socket there = listener.Accept(Limit()).ValueOrThrow();

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(SendDescriptor(ends[0], here, Limit()).ok());
  const Descriptor got = ReceiveDescriptor(there, Limit()).ValueOrThrow();
  struct stat a {
  }, b{};
  REQUIRE(fstat(ends[0], &a) == 0);
  REQUIRE(fstat(got.get(), &b) == 0);
  CHECK(a.st_ino == b.st_ino);
  CHECK(got.get() != ends[0]);
  close(ends[0]);
  close(ends[1]);

  const std::byte byte{};
  REQUIRE(here.Send(Bytes(&byte, 1), Limit()).ok());
  CHECK(ReceiveDescriptor(there, Limit()).status().code() == Code::kDataLoss);
  CHECK(ReceiveDescriptor(there, After(std::chrono::milliseconds(10)))
            .status()
            .code() == Code::kDeadlineExceeded);
  here = Socket();
  CHECK(ReceiveDescriptor(there, Limit()).status().code() ==
        Code::kUnavailable);
}

TEST_CASE("who does not know the secret is sent away") {
  const std::string name = RandomWord().ValueOrThrow();
  Listener listener = ListenLocally(name).ValueOrThrow();
  CHECK(AdmitLocally(listener, "secret").status().code() ==
        Code::kDeadlineExceeded);
  std::vector<Socket> guests;
  for (const std::string_view says : {"", "secre", "sEcret", "secret"}) {
    guests.push_back(ConnectLocally(name).ValueOrThrow());
    const Bytes bytes = std::as_bytes(std::span(says.data(), says.size()));
    REQUIRE(guests.back().Send(bytes, Limit()).ok());
  }
  Socket known = AdmitLocally(listener, "secret").ValueOrThrow();
  std::byte byte{7};
  REQUIRE(known.Send(Bytes(&byte, 1), Limit()).ok());
  CHECK(guests[3].Receive({&byte, 1}, Limit()).ok());
  for (size_t i = 0; i < 3; ++i) {
    CHECK(guests[i].Receive({&byte, 1}, Limit()).code() == Code::kUnavailable);
  }
}

}  // namespace
}  // namespace sluice::dist
