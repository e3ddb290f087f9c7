// Threads are the peers. The limits are there to end a test that hangs; no test
// says how fast anything is.
#include "dist/net/socket.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "dist/net/address.h"
#include "tests/support/random_bytes.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
using testing::RandomBuffer;
using Buffer = std::vector<std::byte>;
using Random = std::mt19937;

constexpr size_t kMega = size_t{1} << 20;

Deadline Limit() {
  return After(std::chrono::minutes(2));
}
Deadline Soon() {
  return After(milliseconds(50));
}

// Cuts into pieces, some of them empty.
template <typename Piece>
std::vector<Piece> Cut(Piece bytes, Random& random) {
  std::vector<Piece> pieces;
  const size_t longest = 1 + random() % (2 * bytes.size() + 1);
  while (!bytes.empty()) {
    if (random() % 4 == 0) pieces.push_back({});
    const size_t size =
        std::min(bytes.size(), 1 + random() % (1 + longest / 2));
    pieces.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  if (random() % 2 == 0) pieces.push_back({});
  return pieces;
}

// Two ends of one stream, named "rank 0" and "rank 1" to each other.
std::pair<Socket, Socket> Connected() {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  Socket zero =
      Socket::Connect("127.0.0.1", listener.port(), Limit()).ValueOrThrow();
  Socket one = listener.Accept(Limit()).ValueOrThrow();
  zero.set_peer("rank 1");
  one.set_peer("rank 0");
  return {std::move(zero), std::move(one)};
}

// Sends so much that no buffers hold it, and more than one call would.
Buffer TooMuch() {
  return Buffer(32 * kMega, std::byte{7});
}

TEST_CASE("who never gives up does not do so at once") {
  const Deadline never = After(milliseconds::max());
  const Deadline now = std::chrono::steady_clock::now();
  CHECK(never > now + std::chrono::hours(24 * 365));
  CHECK(never + milliseconds(1 << 30) > never);
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  std::thread connects([&] {
    CHECK(Socket::Connect("127.0.0.1", listener.port(), never).ok());
  });
  CHECK(listener.Accept(never).ok());
  connects.join();
}

TEST_CASE("transfers arrive byte for byte, however they are cut") {
  auto [zero, one] = Connected();
  Random random(1);
  const size_t sizes[] = {0, 1, 2, 1000, 3 * kMega};
  for (int i = 0; i < 200; ++i) {
    // Few of them large.
    const size_t size = i < 5 ? sizes[i] : random() % (size_t{1} << i % 20);
    const Buffer sent = RandomBuffer(random, size);
    const auto pieces = Cut(Bytes(sent), random);
    Buffer received(size);
    const auto into = Cut(MutableBytes(received), random);
    Status status;
    std::thread peer([&] { status = zero.Send(pieces, Limit()); });
    Status got;
    for (const MutableBytes& piece : into) {
      if (got.ok()) got = one.Receive(piece, Limit());
    }
    peer.join();
    REQUIRE(status.ok());
    REQUIRE(got.ok());
    REQUIRE(received == sent);
  }
}

TEST_CASE("thousands of pieces are one stream") {
  auto [zero, one] = Connected();
  Random random(2);
  const Buffer sent = RandomBuffer(random, 5000);
  std::vector<Bytes> pieces;
  for (const std::byte& b : sent) pieces.push_back({&b, 1});
  REQUIRE(zero.Send(pieces, Limit()).ok());
  Buffer received(sent.size());
  REQUIRE(one.Receive(received, Limit()).ok());
  CHECK(received == sent);
}

TEST_CASE("nothing needs no peer and no time") {
  Socket none;
  const Deadline past = After(milliseconds(-1));
  const std::vector<Bytes> empty(3);
  CHECK(none.Send(empty, past).ok());
  CHECK(none.Send(std::span<const Bytes>(), past).ok());
  CHECK(none.Receive({}, past).ok());
  CHECK(Exchange(none, empty, none, {}, past).ok());
  std::byte b{};
  CHECK(none.Send({&b, 1}, past).code() == Code::kFailedPrecondition);
  CHECK(none.Receive({&b, 1}, past).code() == Code::kFailedPrecondition);
  CHECK(none.LocalAddress().status().code() == Code::kFailedPrecondition);
}

TEST_CASE("both ends of one stream exchange more than buffers hold") {
  auto [zero, one] = Connected();
  Random random(3);
  const Buffer sent[] = {RandomBuffer(random, 24 * kMega),
                         RandomBuffer(random, 20 * kMega)};
  Buffer received[] = {Buffer(sent[1].size()), Buffer(sent[0].size())};
  Socket* sockets[] = {&zero, &one};
  Status status[2];
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Random cuts(static_cast<unsigned>(rank));
      const auto out = Cut(Bytes(sent[rank]), cuts);
      const auto in = Cut(MutableBytes(received[rank]), cuts);
      status[rank] = Exchange(*sockets[rank], out, *sockets[rank], in, Limit());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Status& s : status) CHECK(s.ToString() == "ok");
  CHECK(received[0] == sent[1]);
  CHECK(received[1] == sent[0]);
}

// Every rank sends to the next and receives from the one before.
void CheckRing(size_t ranks, size_t bytes) {
  Random random(static_cast<unsigned>(ranks));
  std::vector<Socket> next(ranks);
  std::vector<Socket> before(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    std::tie(next[i], before[(i + 1) % ranks]) = Connected();
  }
  std::vector<Buffer> sent;
  for (size_t i = 0; i < ranks; ++i) {
    sent.push_back(RandomBuffer(random, bytes + i));
  }
  std::vector<Buffer> received(ranks);
  std::vector<Status> status(ranks);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks; ++i) {
    received[i].resize(sent[(i + ranks - 1) % ranks].size());
    threads.emplace_back([&, i] {
      const Bytes out = sent[i];
      const MutableBytes in = received[i];
      status[i] = Exchange(next[i], {&out, 1}, before[i], {&in, 1}, Limit());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < ranks; ++i) {
    CHECK(status[i].ToString() == "ok");
    CHECK(received[i] == sent[(i + ranks - 1) % ranks]);
  }
}

TEST_CASE("a ring exchanges more than buffers hold") {
  for (size_t ranks = 2; ranks <= 5; ++ranks) CheckRing(ranks, 12 * kMega);
  CheckRing(3, 0);
}

TEST_CASE("a peer that closes is named, wherever it stops") {
  Random random(4);
  for (const size_t before : {size_t{0}, size_t{1}, size_t{999}, kMega}) {
    auto [zero, one] = Connected();
    const Buffer sent = RandomBuffer(random, before);
    std::thread peer([&, end = std::move(one)]() mutable {
      const Status status = end.Send(sent, Limit());
      CHECK(status.ok());
      end = Socket();
    });
    Buffer received(before + 1);
    const Status status = zero.Receive(received, Limit());
    peer.join();
    CHECK(status.code() == Code::kUnavailable);
    CHECK(status.message() == "rank 1 has closed the connection");
    received.pop_back();
    CHECK(received == sent);
  }
}

TEST_CASE("a sender hears that its peer is gone") {
  const Buffer sent = TooMuch();
  for (const size_t taken : {size_t{0}, size_t{1}, 5 * kMega}) {
    auto [zero, one] = Connected();
    std::thread peer([taken, end = std::move(one)]() mutable {
      Buffer some(taken);
      const Status status = end.Receive(some, Limit());
      CHECK(status.ok());
      end = Socket();
    });
    const Status status = zero.Send(sent, Limit());
    peer.join();
    // Closed where it came to that first, reset where bytes were left unread.
    CHECK(status.code() == Code::kUnavailable);
    CHECK(status.message().starts_with("rank 1"));
    // And again, without a signal.
    CHECK(zero.Send(sent, Limit()).code() == Code::kUnavailable);
  }
}

TEST_CASE("whoever exchanges hears of either peer") {
  const Buffer sent = TooMuch();
  const Bytes out = sent;
  Buffer received(10);
  const MutableBytes in = received;
  auto [to, reader] = Connected();
  auto [from, writer] = Connected();
  to.set_peer("rank 2");
  SUBCASE("the one before") {
    writer = Socket();
    CHECK(Exchange(to, {&out, 1}, from, {&in, 1}, Limit()).message() ==
          "rank 1 has closed the connection");
  }
  SUBCASE("the next") {
    reader = Socket();
    const Status status = Exchange(to, {&out, 1}, from, {&in, 1}, Limit());
    CHECK(status.code() == Code::kUnavailable);
    CHECK(status.message().starts_with("rank 2"));
  }
}

TEST_CASE("a reset is the system's words") {
  auto [zero, one] = Connected();
  const linger at_once = {1, 0};
  REQUIRE(setsockopt(one.descriptor(), SOL_SOCKET, SO_LINGER, &at_once,
                     sizeof(at_once)) == 0);
  one = Socket();
  std::byte b{};
  CHECK(zero.Receive({&b, 1}, Limit()).message() ==
        "rank 1: Connection reset by peer");
}

TEST_CASE("deadlines say what was awaited and how much was done") {
  auto [zero, one] = Connected();
  const std::byte three[3] = {};
  Buffer received(10);
  REQUIRE(one.Send(three, Limit()).ok());
  const Status late = zero.Receive(received, Soon());
  CHECK(late.code() == Code::kDeadlineExceeded);
  CHECK(late.message() ==
        "nothing from rank 1 for so long: 3 of 10 bytes received");

  const Buffer much = TooMuch();
  const Status full = zero.Send(much, Soon());
  CHECK(full.code() == Code::kDeadlineExceeded);
  CHECK(full.message().starts_with("rank 1 takes nothing for so long: "));
  CHECK(full.message().ends_with(" of 33554432 bytes sent"));

  const Bytes out = much;
  const MutableBytes in = received;
  const Status both = Exchange(zero, {&out, 1}, zero, {&in, 1}, Soon());
  CHECK(both.code() == Code::kDeadlineExceeded);
  CHECK(both.message().starts_with(
      "nothing from rank 1 for so long: 0 of 10 bytes received; rank 1 takes "
      "nothing for so long: "));
  CHECK(both.message().ends_with(" of 33554432 bytes sent"));
}

TEST_CASE("what needs no wait is done after the deadline") {
  auto [zero, one] = Connected();
  const std::byte sent[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::byte received[3];
  CHECK(zero.Send(sent, Deadline::min()).ok());
  std::byte first[1];
  REQUIRE(one.Receive(first, Deadline::max()).ok());
  CHECK(one.Receive({received, 2}, Deadline::min()).ok());
  CHECK(received[1] == std::byte{3});
  CHECK(one.Receive({received, 1}, Deadline::min()).code() ==
        Code::kDeadlineExceeded);
}

TEST_CASE("whoever connects waits for the listener") {
  // A port that is bound, so that it is nobody else's, and not listened at.
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  REQUIRE(bind(descriptor, plain, size) == 0);
  REQUIRE(getsockname(descriptor, plain, &size) == 0);
  const int port = ntohs(address.sin_port);
  const auto early = Socket::Connect("127.0.0.1", port, Soon());
  CHECK(early.status().code() == Code::kDeadlineExceeded);
  CHECK(early.status().message() ==
        "cannot connect to 127.0.0.1:" + std::to_string(port) +
            " for so long: nobody listens there");
  // Or does not, which would take to the limit.
  const auto refused =
      Socket::Connect("127.0.0.1", port, Limit(), /*awaits_listener=*/false);
  CHECK(refused.status().code() == Code::kUnavailable);
  CHECK(refused.status().message() ==
        "cannot connect to 127.0.0.1:" + std::to_string(port) +
            ": nobody listens there");

  Result<Socket> connected = Unavailable("");
  std::thread peer(
      [&] { connected = Socket::Connect("127.0.0.1", port, Limit()); });
  std::this_thread::sleep_for(milliseconds(120));
  CHECK(listen(descriptor, 1) == 0);
  // By its descriptor, as a launcher hands it over.
  Listener listener(descriptor);
  CHECK(listener.port() == port);
  auto accepted = listener.Accept(Limit());
  peer.join();
  REQUIRE(accepted.ok());
  REQUIRE(connected.ok());
  CHECK(connected->peer() == "127.0.0.1:" + std::to_string(port));
  CHECK(*connected->LocalAddress() == "127.0.0.1");
}

TEST_CASE("hosts have names and both kinds of addresses") {
  Listener four = Listener::Open("127.0.0.1").ValueOrThrow();
  CHECK(Socket::Connect("localhost", four.port(), Limit()).ok());
  auto six = Listener::Open("::1");
  if (!six.ok()) {
    MESSAGE("this host has no IPv6");
    return;
  }
  auto connected = Socket::Connect("::1", six->port(), Limit());
  REQUIRE(connected.ok());
  CHECK(connected->peer() == "[::1]:" + std::to_string(six->port()));
  CHECK(*connected->LocalAddress() == "::1");
  CHECK(six->Accept(Limit()).ok());
}

TEST_CASE("hosts and ports that cannot be are refused") {
  for (const int port : {-1, 0, 65536}) {
    CHECK(Socket::Connect("127.0.0.1", port, Limit()).status().code() ==
          Code::kInvalidArgument);
  }
  CHECK(Socket::Connect("", 1, Limit()).status().code() ==
        Code::kInvalidArgument);
  CHECK(Socket::Connect(std::string("a\0b", 3), 1, Limit()).status().code() ==
        Code::kInvalidArgument);
  CHECK(Socket::Connect("no.such.host.invalid", 1, Limit()).status().code() ==
        Code::kNotFound);
  CHECK_FALSE(Listener::Open("192.0.2.1").ok());  // of no interface (RFC 5737)
}

TEST_CASE("a listener that nobody connects to") {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const auto nobody = listener.Accept(Soon());
  CHECK(nobody.status().code() == Code::kDeadlineExceeded);
  CHECK(nobody.status().message() == "nobody has connected to port " +
                                         std::to_string(listener.port()) +
                                         " for so long");
  const auto no_listener = Listener(-1).Accept(Soon());
  CHECK(no_listener.status().code() == Code::kUnavailable);
}

TEST_CASE("a name that others shall reach is not the loopback's") {
  const Status named = CheckNamesHost("localhost");
  CHECK(named.code() == Code::kFailedPrecondition);
  CHECK(named.message().find("'localhost' is ") != std::string::npos);
  // A number is what was meant.
  for (const char* number : {"127.0.0.1", "::1", "192.0.2.1", "0.0.0.0"}) {
    CHECK(CheckNamesHost(number).ok());
  }
}

// Not every host of a job need have IPv6.
TEST_CASE("of a name with both kinds of addresses it is IPv4 that listens") {
  const auto at = [](const std::vector<std::string>& hosts) {
    std::vector<Address> addresses;
    for (const std::string& host : hosts) {
      addresses.push_back(Resolve(host, 4000).ValueOrThrow().front());
    }
    return HostOf(ToListenAt(addresses));
  };
  CHECK(at({"::1", "127.0.0.1"}) == "127.0.0.1");
  CHECK(at({"127.0.0.1", "::1"}) == "127.0.0.1");
  CHECK(at({"::1"}) == "::1");
  CHECK(at({"10.0.0.2", "10.0.0.1"}) == "10.0.0.2");
  const Listener named = Listener::Open("localhost").ValueOrThrow();
  const Address own = LocalAddressOf(named.descriptor()).ValueOrThrow();
  CHECK(HostOf(own).starts_with("127."));
}

TEST_CASE("descriptors are private, unbuffered, and closed with their owner") {
  int descriptors[2];
  {
    auto [zero, one] = Connected();
    descriptors[0] = zero.descriptor();
    descriptors[1] = one.descriptor();
    for (const int descriptor : descriptors) {
      CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
      CHECK((fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0);
      int on = 0;
      socklen_t size = sizeof(on);
      getsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, &size);
      CHECK(on != 0);
    }
    Socket moved = std::move(zero);
    CHECK(moved.descriptor() == descriptors[0]);
    CHECK(moved.peer() == "rank 1");
    moved = std::move(one);
    CHECK(fcntl(descriptors[0], F_GETFD) < 0);
    CHECK(moved.descriptor() == descriptors[1]);
  }
  CHECK(fcntl(descriptors[1], F_GETFD) < 0);
}

}  // namespace
}  // namespace sluice::dist
