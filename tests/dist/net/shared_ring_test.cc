// The ends of a ring are two threads; each has mapped the memory by itself, as
// two processes would.
#include "dist/net/shared_ring.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/local.h"
#include "dist/net/shared_stream.h"
#include "dist/net/socket.h"
#include "tests/support/random_bytes.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
using testing::RandomBuffer;
using Buffer = std::vector<std::byte>;

Deadline Limit() {
  return After(std::chrono::minutes(1));
}

// Both ends of a ring, and of the bells beside it.
struct Pair {
  Pair() {
    ring[0] = SharedRing::Create("mark").ValueOrThrow();
    ring[1] =
        SharedRing::Open(Descriptor(dup(ring[0]->descriptor()))).ValueOrThrow();
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (size_t i = 0; i < 2; ++i) {
      bells[i] = Socket(ends[i]);
      bells[i].set_peer(i == 0 ? "the taker" : "the filler");
      lane[i] = {ring[i].get(), &bells[i]};
    }
  }

  std::array<std::unique_ptr<SharedRing>, 2> ring;
  std::array<Socket, 2> bells;
  std::array<SharedLane, 2> lane;
};

Status SendAll(SharedLane& lane, std::span<const Bytes> pieces,
               Deadline deadline) {
  SharedOutgoing out(lane, pieces);
  const Combine none;
  SharedIncoming in(lane, {}, none);
  return Exchange(out, in, deadline);
}
Status ReceiveAll(SharedLane& lane, MutableBytes place, Deadline deadline,
                  const Combine& combine = {}) {
  SharedOutgoing out(lane, {});
  SharedIncoming in(lane, place, combine);
  return Exchange(out, in, deadline);
}

TEST_CASE("SharedRing: parts come as they were filled, and slots come back") {
  Pair pair;
  SharedRing &from = *pair.ring[0], &to = *pair.ring[1];
  CHECK(to.text() == "mark");
  CHECK(to.Front().empty());
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < SharedRing::kSlots; ++i) {
      const MutableBytes slot = from.Free();
      REQUIRE(slot.size() == SharedRing::kSlotBytes);
      slot[0] = static_cast<std::byte>(i);
      CHECK_FALSE(from.Fill(i + 1));
    }
    CHECK(from.Free().empty());
    for (size_t i = 0; i < SharedRing::kSlots; ++i) {
      const Bytes part = to.Front();
      REQUIRE(part.size() == i + 1);
      CHECK(part[0] == static_cast<std::byte>(i));
      CHECK_FALSE(to.Pop());
      CHECK(from.Free().size() == SharedRing::kSlotBytes);
    }
    CHECK(to.Front().empty());
  }
}

TEST_CASE("SharedRing: who sleeps is woken once") {
  Pair pair;
  SharedRing &from = *pair.ring[0], &to = *pair.ring[1];
  to.SetSleeps(true);
  CHECK(from.Fill(1));
  CHECK_FALSE(from.Fill(1));
  from.SetSleeps(true);
  CHECK(to.Pop());
  CHECK_FALSE(to.Pop());
  to.SetSleeps(true);
  to.SetSleeps(false);
  CHECK_FALSE(from.Fill(1));
}

TEST_CASE("SharedRing: what is not one is refused") {
  const auto refused = [](int descriptor) {
    return SharedRing::Open(Descriptor(descriptor)).status().code();
  };
  CHECK(refused(-1) == Code::kDataLoss);
  CHECK(refused(open("/dev/null", O_RDWR)) == Code::kDataLoss);
  const int plain = memfd_create("x", MFD_ALLOW_SEALING);
  REQUIRE(plain >= 0);
  REQUIRE(ftruncate(plain, 4096 + 16 * 65536) == 0);
  CHECK(refused(dup(plain)) == Code::kDataLoss);  // it could be made smaller
  REQUIRE(ftruncate(plain, 4096) == 0);
  REQUIRE(fcntl(plain, F_ADD_SEALS,
                F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK(refused(plain) == Code::kDataLoss);
}

TEST_CASE("SharedRing: nobody can make it smaller") {
  const auto ring = SharedRing::Create("").ValueOrThrow();
  CHECK(ftruncate(ring->descriptor(), 0) < 0);
  CHECK(errno == EPERM);
}

TEST_CASE("SharedRing: no memory is an error, not the end") {
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  rlimit small = old;
  small.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status status = SharedRing::Create("").status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
  CHECK(status.code() == Code::kResourceExhausted);
}

TEST_CASE("pieces of any size go through a ring, in order") {
  std::mt19937 random(1);
  for (int run = 0; run < 40; ++run) {
    Pair pair;
    std::vector<Buffer> sent;
    const size_t largest = run % 2 == 0 ? 100 : size_t{3} << 20;
    const size_t count = 1 + random() % 12;
    for (size_t i = 0; i < count; ++i) {
      sent.push_back(
          RandomBuffer(random, random() % 5 * (random() % largest) / 4));
    }
    std::vector<Bytes> pieces(sent.begin(), sent.end());
    Status filled;
    std::thread filler(
        [&] { filled = SendAll(pair.lane[0], pieces, Limit()); });
    for (const Buffer& want : sent) {
      Buffer got(want.size());
      size_t parts = 0;
      const Combine invert = [&](MutableBytes to, Bytes part) {
        ++parts;
        std::transform(part.begin(), part.end(), to.begin(),
                       [](std::byte b) { return ~b; });
      };
      const bool inverts = random() % 2 == 0;
      const Status status =
          ReceiveAll(pair.lane[1], got, Limit(), inverts ? invert : Combine());
      CHECK(status.ToString() == "ok");
      if (inverts) {
        for (std::byte& b : got) b = ~b;
        CHECK(parts == (want.size() + 65535) / 65536);
      }
      CHECK((got == want));
    }
    filler.join();
    CHECK(filled.ToString() == "ok");
  }
}

// Without the two the ends would sleep on each other's unheard bells: every
// byte is waited for.
TEST_CASE("ends that sleep at every turn are always woken") {
  Pair there, back;
  constexpr int kTurns = 3000;
  const auto play = [&](SharedLane& to, SharedLane& from, bool begins) {
    std::byte ball{};
    for (int i = 0; i < kTurns; ++i) {
      if (i > 0 || !begins) {
        if (!ReceiveAll(from, {&ball, 1}, Limit()).ok()) return -1;
      }
      ball = static_cast<std::byte>(std::to_integer<int>(ball) + 1);
      const Bytes piece(&ball, 1);
      if (!SendAll(to, {&piece, 1}, Limit()).ok()) return -1;
    }
    return std::to_integer<int>(ball);
  };
  int other = 0;
  std::thread player([&] { other = play(back.lane[0], there.lane[1], false); });
  const int mine = play(there.lane[0], back.lane[1], true);
  player.join();
  CHECK(mine == (2 * kTurns - 1) % 256);
  CHECK(other == 2 * kTurns % 256);
}

TEST_CASE("a peer that is silent or gone is an error that names it") {
  Buffer data(SharedRing::kSlots * SharedRing::kSlotBytes + 1);
  const Bytes piece(data);
  {
    Pair pair;
    const Status late =
        ReceiveAll(pair.lane[1], {data.data(), 3}, After(milliseconds(20)));
    CHECK(late.code() == Code::kDeadlineExceeded);
    CHECK(late.message() ==
          "nothing from the filler for so long: 0 of 3 bytes received");
    const Status full =
        SendAll(pair.lane[0], {&piece, 1}, After(milliseconds(20)));
    CHECK(full.code() == Code::kDeadlineExceeded);
    CHECK(full.message() ==
          "the taker takes nothing for so long: 1048576 of 1048577 bytes sent");
  }
  for (const bool sleeps : {false, true}) {  // when the peer goes
    Pair pair;
    std::thread goes([&] {
      if (sleeps) std::this_thread::sleep_for(milliseconds(20));
      pair.bells[1] = Socket();
    });
    const Status status = SendAll(pair.lane[0], {&piece, 1}, Limit());
    goes.join();
    CHECK(status.ToString() ==
          Unavailable("the taker has closed the connection").ToString());
  }
  {
    Pair pair;  // what it left is still there
    const Bytes few = piece.first(5);
    REQUIRE(SendAll(pair.lane[0], {&few, 1}, Limit()).ok());
    pair.bells[0] = Socket();
    pair.ring[0].reset();
    CHECK(ReceiveAll(pair.lane[1], {data.data(), 5}, Limit()).ok());
    CHECK(ReceiveAll(pair.lane[1], {data.data(), 5}, Limit()).code() ==
          Code::kUnavailable);
  }
  {
    Pair pair;  // other parts than were agreed on
    const Bytes few = piece.first(5);
    REQUIRE(SendAll(pair.lane[0], {&few, 1}, Limit()).ok());
    const Status status = ReceiveAll(pair.lane[1], {data.data(), 4}, Limit());
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message() ==
          "the filler has sent 5 bytes where 4 were expected");
  }
}

}  // namespace
}  // namespace sluice::dist
