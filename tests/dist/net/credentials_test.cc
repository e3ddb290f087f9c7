#include "dist/net/credentials.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>
#include <string>

#include "dist/net/authority.h"
#include "dist/net/tls.h"
#include "tests/support/temporary_folder.h"

namespace sluice::dist {
namespace {

using testing::TemporaryFolder;

TEST_CASE("identities are read back, whatever they are") {
  std::mt19937 random(1);
  const std::string letters = "abcXYZ019-_.";
  const auto word = [&] {
    std::string text;
    const size_t length = 1 + random() % 64;
    while (text.size() < length) text += letters[random() % letters.size()];
    return text;
  };
  for (int i = 0; i < 500; ++i) {
    const Identity identity{word(), word(), static_cast<int>(random() >> 1)};
    CHECK(ParseIdentity(UriOf(identity)).ValueOrThrow() == identity);
  }
}

TEST_CASE("what names nobody is no identity") {
  const std::string good = "sluice://job/worker/12";
  CHECK(ParseIdentity(good).ok());
  for (const std::string bad :
       {"", "sluice://", "sluice://job/worker", "sluice://job/worker/",
        "sluice://job/worker/-1", "sluice://job/worker/+1",
        "sluice://job/worker/012", "sluice://job/worker/1 ",
        "sluice://job/worker/99999999999", "sluice://job//1",
        "sluice:///worker/1", "sluice://job/a/worker/1",
        "sluice://jo b/worker/1", "https://job/worker/1",
        "sluice://job/worker/1\n"}) {
    CAPTURE(bad);
    CHECK(ParseIdentity(bad).status().code() == Code::kInvalidArgument);
  }
  CHECK(!ParseIdentity(std::string("sluice://job/worker/1\0", 22)).ok());
  CHECK(!ParseIdentity("sluice://" + std::string(65, 'a') + "/worker/1").ok());
  // Any change of a byte gives another identity or none.
  const Identity whole = ParseIdentity(good).ValueOrThrow();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int c = 0; c < 256; ++c) {
      std::string other = good;
      other[i] = static_cast<char>(c);
      if (other == good) continue;
      const auto parsed = ParseIdentity(other);
      if (parsed.ok()) CHECK(!(*parsed == whole));
    }
  }
}

TEST_CASE("credentials go through a pipe as one text") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  const Credentials sent =
      authority.Issue("worker", 3, std::chrono::hours(1)).ValueOrThrow();
  const std::string text = TextOf(sent);
  const Credentials got = ParseCredentials(text).ValueOrThrow();
  CHECK(got.certificate == sent.certificate);
  CHECK(got.authority == sent.authority);
  CHECK(got.key == sent.key);
  const auto tls = Tls::Create(got).ValueOrThrow();
  CHECK(tls->identity() == Identity{"job", "worker", 3});
  // A part of it is none; and what it says of the key is in no message.
  for (size_t length = 0; length + 1 < text.size(); length += 37) {
    CAPTURE(length);
    const Status part = ParseCredentials(text.substr(0, length)).status();
    CHECK(part.code() == Code::kInvalidArgument);
    CHECK(part.message().find("BEGIN") == std::string::npos);
  }
}

TEST_CASE("credentials of a folder; a key that others may read is none") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("job").ValueOrThrow();
  const Credentials own =
      authority.Issue("worker", 1, std::chrono::hours(1)).ValueOrThrow();
  const TemporaryFolder folder;
  std::ofstream(folder / "ca.pem") << own.authority;
  std::ofstream(folder / "worker-1.pem") << own.certificate;
  const std::string key = folder / "worker-1.key";
  std::ofstream(key) << own.key;
  chmod(key.c_str(), 0644);
  const std::string path = folder.path();
  const Status open = ReadCredentials(path, "worker", 1).status();
  CHECK(open.code() == Code::kInvalidArgument);
  CHECK(open.message().find("chmod 600") != std::string::npos);
  chmod(key.c_str(), 0600);
  const auto read = ReadCredentials(path, "worker", 1).ValueOrThrow();
  CHECK(Tls::Create(read).ValueOrThrow()->identity().rank == 1);
  CHECK(ReadCredentials(path, "worker", 2).status().code() == Code::kNotFound);
}

}  // namespace
}  // namespace sluice::dist
