// Both ends are threads. Certificates are ours or, as a reference, the openssl
// program's.
#include "dist/net/tls.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/authority.h"
#include "dist/net/socket.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace sluice::dist {
namespace {

using testing::RandomBuffer;
using testing::TemporaryFolder;
using testing::TextOf;
using Buffer = std::vector<std::byte>;
using TlsPtr = std::shared_ptr<const Tls>;

constexpr std::chrono::hours kHour(1);

Deadline Limit() {
  return After(std::chrono::minutes(1));
}

TlsPtr Issued(const Authority& authority, int rank,
              std::chrono::seconds valid = kHour) {
  return Tls::Create(authority.Issue("worker", rank, valid).ValueOrThrow())
      .ValueOrThrow();
}

struct Ends {
  Socket connects, listens;
  Status connected, listened;
};

// A stream between two, as far as they let each other.
Ends Meet(const Tls& connects, const Tls& listens) {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  Ends ends;
  ends.connects =
      Socket::Connect("127.0.0.1", listener.port(), Limit()).ValueOrThrow();
  ends.listens = listener.Accept(Limit()).ValueOrThrow();
  ends.connects.set_peer("rank 1");
  ends.listens.set_peer("rank 0");
  std::thread other([&] {
    ends.listened = ends.listens.AwaitTls(listens, TlsSide::kListens, Limit());
    if (!ends.listened.ok()) ends.listens = Socket();  // as any server does
  });
  ends.connected =
      ends.connects.AwaitTls(connects, TlsSide::kConnects, Limit());
  other.join();
  return ends;
}

template <typename Piece>
std::vector<Piece> Cut(Piece bytes, std::mt19937& random) {
  std::vector<Piece> pieces;
  while (!bytes.empty()) {
    if (random() % 4 == 0) pieces.push_back({});
    const size_t size = std::min<size_t>(
        bytes.size(), 1 + random() % (size_t{1} << random() % 20));
    pieces.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return pieces;
}

TEST_CASE("what is sent both ways at once arrives, however it is cut") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  Ends ends = Meet(*Issued(authority, 0), *Issued(authority, 1));
  REQUIRE(ends.connected.ToString() == "ok");
  REQUIRE(ends.listened.ToString() == "ok");
  CHECK(ends.connects.peer_identity() == Identity{"job", "worker", 1});
  CHECK(ends.listens.peer_identity() == Identity{"job", "worker", 0});
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const Buffer out = RandomBuffer(random, random() % (size_t{1} << i % 23));
    const Buffer back = RandomBuffer(random, random() % (size_t{1} << i % 23));
    Buffer got(out.size()), got_back(back.size());
    const auto out_pieces = Cut(Bytes(out), random);
    const auto back_pieces = Cut(Bytes(back), random);
    const auto in_pieces = Cut(MutableBytes(got), random);
    const auto in_back_pieces = Cut(MutableBytes(got_back), random);
    Status other;
    std::thread peer([&] {
      other =
          Exchange(ends.listens, back_pieces, ends.listens, in_pieces, Limit());
    });
    const Status mine = Exchange(ends.connects, out_pieces, ends.connects,
                                 in_back_pieces, Limit());
    peer.join();
    REQUIRE(mine.ToString() == "ok");
    REQUIRE(other.ToString() == "ok");
    REQUIRE(got == out);
    REQUIRE(got_back == back);
  }
}

TEST_CASE("when a certificate expires is known to the second") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  const auto now = std::chrono::system_clock::now();
  const auto expires = Issued(authority, 0, kHour * 100)->expires();
  CHECK(expires > now + kHour * 100 - std::chrono::seconds(2));
  CHECK(expires < now + kHour * 100 + std::chrono::minutes(1));
}

TEST_CASE("the end of a peer is its end, not garbage") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  Ends ends = Meet(*Issued(authority, 0), *Issued(authority, 1));
  REQUIRE(ends.listened.ok());
  ends.listens = Socket();
  Buffer byte(1);
  const Status end = ends.connects.Receive(byte, Limit());
  CHECK(end.ToString() == "unavailable: rank 1 has closed the connection");
  // And no signal where it is written to.
  const Buffer much(size_t{8} << 20);
  CHECK(ends.connects.Send(Bytes(much), Limit()).code() == Code::kUnavailable);
}

// Of the side that listens, which alone has to refuse; whoever connects finds
// its stream closed, at the latest when it is used.
void CheckRefused(Ends ends, const std::string& why) {
  CAPTURE(ends.connected.ToString());
  CHECK(ends.listened.code() == Code::kUnavailable);
  CAPTURE(ends.listened.message());
  CHECK(ends.listened.message().find(why) != std::string::npos);
  Buffer byte(1);
  CHECK((!ends.connected.ok() || !ends.connects.Receive(byte, Limit()).ok()));
}

TEST_CASE("a certificate of another authority is refused by both") {
  if (!HasTls()) return;
  const Authority ours = Authority::Create("job").ValueOrThrow();
  const Authority theirs = Authority::Create("job").ValueOrThrow();
  Ends ends = Meet(*Issued(theirs, 0), *Issued(ours, 1));
  CHECK(!ends.connected.ok());
  CHECK(!ends.listened.ok());
  // Who trusts ours is still not trusted.
  Credentials mixed = theirs.Issue("worker", 0, kHour).ValueOrThrow();
  mixed.authority += ours.Issue("worker", 0, kHour).ValueOrThrow().authority;
  CheckRefused(Meet(*Tls::Create(mixed).ValueOrThrow(), *Issued(ours, 1)),
               "its certificate: ");
}

TEST_CASE("a certificate that has expired is refused, also one's own") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  const TlsPtr old = Issued(authority, 0, std::chrono::seconds(2));
  const Credentials expired =
      authority.Issue("worker", 0, std::chrono::seconds(-1)).ValueOrThrow();
  const Status own = Tls::Create(expired).status();
  CHECK(own.code() == Code::kInvalidArgument);
  CHECK(own.message().find("expired") != std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  CheckRefused(Meet(*old, *Issued(authority, 1)), "expired");
}

TEST_CASE("credentials that do not belong together are refused") {
  if (!HasTls()) return;
  const Authority a = Authority::Create("job").ValueOrThrow();
  const Authority b = Authority::Create("job").ValueOrThrow();
  const Credentials one = a.Issue("worker", 0, kHour).ValueOrThrow();
  const Credentials two = a.Issue("worker", 0, kHour).ValueOrThrow();
  const Credentials other = b.Issue("worker", 0, kHour).ValueOrThrow();
  for (const Credentials& bad :
       {Credentials{one.authority, one.certificate, two.key},
        Credentials{other.authority, one.certificate, one.key},
        Credentials{one.key, one.certificate, one.key},
        Credentials{one.authority, "x", one.key},
        Credentials{one.authority, one.certificate, ""}}) {
    CHECK(Tls::Create(bad).status().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("plain bytes are no handshake") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  const TlsPtr tls = Issued(authority, 1);
  std::mt19937 random(2);
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  for (int i = 0; i < 30; ++i) {
    Socket stranger =
        Socket::Connect("127.0.0.1", listener.port(), Limit()).ValueOrThrow();
    Socket guest = listener.Accept(Limit()).ValueOrThrow();
    const Buffer bytes = RandomBuffer(random, 1 + random() % 3000);
    REQUIRE(stranger.Send(Bytes(bytes), Limit()).ok());
    stranger = Socket();
    const Status status = guest.AwaitTls(*tls, TlsSide::kListens, Limit());
    CHECK(status.code() == Code::kUnavailable);
  }
}

TEST_CASE("half a handshake ends at the deadline") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const Socket silent =
      Socket::Connect("127.0.0.1", listener.port(), Limit()).ValueOrThrow();
  Socket guest = listener.Accept(Limit()).ValueOrThrow();
  const Status status = guest.AwaitTls(*Issued(authority, 1), TlsSide::kListens,
                                       After(std::chrono::milliseconds(50)));
  CHECK(status.code() == Code::kDeadlineExceeded);
}

bool Run(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

TEST_CASE("the openssl program finds our certificates good") {
  if (!HasTls() || !Run("openssl version")) return;
  const Credentials own = Authority::Create("job")
                              .ValueOrThrow()
                              .Issue("worker", 7, kHour)
                              .ValueOrThrow();
  const TemporaryFolder folder;
  std::ofstream(folder / "ca.pem") << own.authority;
  std::ofstream(folder / "own.pem") << own.certificate;
  const std::string ca = folder / "ca.pem", cert = folder / "own.pem";
  for (const std::string purpose : {"sslserver", "sslclient"}) {
    CHECK(
        Run(fmt::format("openssl verify -x509_strict -purpose {} -CAfile {} "
                        "{}",
                        purpose, ca, cert)));
  }
  CHECK(
      Run(fmt::format("openssl x509 -in {} -noout -ext subjectAltName | "
                      "grep -q 'URI:sluice://job/worker/7'",
                      cert)));
  CHECK(
      Run(fmt::format("openssl x509 -in {} -noout -text | "
                      "grep -q prime256v1",
                      cert)));
  CHECK(!Run(fmt::format("openssl verify {}", cert)));
}

constexpr char kNewKey[] =
    "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

// Of a name, signed by another of the folder.
void SignByHand(const TemporaryFolder& folder, const std::string& name,
                const std::string& by, const std::string& extensions) {
  REQUIRE(Run(fmt::format(
      "cd '{0}' && {1} -subj /CN={2} -keyout {2}.key -out {2}.csr && "
      "printf '{4}' >{2}.ext && openssl x509 -req -in {2}.csr -CA {3}.pem "
      "-CAkey {3}.key -CAcreateserial -days 1 -extfile {2}.ext -out {2}.pem",
      folder.path(), kNewKey, name, by, extensions)));
}

// As docs/distributed.md says that users make their own.
Credentials MadeByHand(const TemporaryFolder& folder, const std::string& uri,
                       const std::string& by = "ca") {
  if (!std::ifstream(folder / "ca.pem").good()) {
    REQUIRE(
        Run(fmt::format("cd '{}' && {} -x509 -days 1 -subj /CN=ours "
                        "-keyout ca.key -out ca.pem",
                        folder.path(), kNewKey)));
  }
  if (by != "ca") {
    SignByHand(folder, by, "ca", "basicConstraints=critical,CA:TRUE");
  }
  SignByHand(folder, "own", by, "subjectAltName=URI:" + uri);
  return ReadCredentialFiles(folder / "ca.pem", folder / "own.pem",
                             folder / "own.key")
      .ValueOrThrow();
}

TEST_CASE("users bring their own; another job of their authority is refused") {
  if (!HasTls() || !Run("openssl version")) return;
  const TemporaryFolder folder;
  const auto made = [&](const std::string& uri) {
    return Tls::Create(MadeByHand(folder, uri)).ValueOrThrow();
  };
  const TlsPtr zero = made("sluice://ours/worker/0");
  const Ends ends = Meet(*zero, *made("sluice://ours/worker/1"));
  CHECK(ends.connected.ToString() == "ok");
  CHECK(ends.listened.ToString() == "ok");
  CHECK(ends.listens.peer_identity().rank == 0);
  CheckRefused(Meet(*made("sluice://theirs/worker/1"), *zero),
               "job 'theirs', not 'ours'");
  const Status nobody =
      Tls::Create(MadeByHand(folder, "https://example.com/")).status();
  CHECK(nobody.code() == Code::kInvalidArgument);
}

TEST_CASE("who has signed a certificate for the authority goes with it") {
  if (!HasTls() || !Run("openssl version")) return;
  const TemporaryFolder folder;
  Credentials own =
      MadeByHand(folder, "sluice://ours/worker/0", "intermediate");
  // By itself nobody knows it, as its own process says.
  const Status alone = Tls::Create(own).status();
  CHECK(alone.code() == Code::kInvalidArgument);
  CHECK(alone.message().starts_with("this process's certificate: "));
  own.certificate += TextOf(folder / "intermediate.pem");
  // Through a pipe, too, as the launcher's.
  own = ParseCredentials(TextOf(own)).ValueOrThrow();
  CHECK(own.authority == TextOf(folder / "ca.pem"));
  const TlsPtr zero = Tls::Create(own).ValueOrThrow();
  // The other has it of the authority itself, and has never seen who is
  // between.
  const TlsPtr one =
      Tls::Create(MadeByHand(folder, "sluice://ours/worker/1")).ValueOrThrow();
  for (const auto& [connects, listens] :
       {std::pair(zero, one), std::pair(one, zero), std::pair(zero, zero)}) {
    const Ends ends = Meet(*connects, *listens);
    CHECK(ends.connected.ToString() == "ok");
    CHECK(ends.listened.ToString() == "ok");
  }
  // The signer of another, and a broken one, are none.
  Credentials bad = own;
  bad.certificate +=
      "-----BEGIN CERTIFICATE-----\nAAAA\n"
      "-----END CERTIFICATE-----\n";
  CHECK(Tls::Create(bad).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::dist
