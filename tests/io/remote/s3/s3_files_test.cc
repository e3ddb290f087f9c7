// Objects of a store as files: reading under faults, listing, names.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include "io/remote/s3/s3_files.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using testing::Below;
using testing::Contains;
using testing::Once;
using testing::RandomBytes;
using testing::RemoteFiles;
using testing::ServedRequest;
using testing::SmallSizes;
using testing::StoreFault;

// The faults of a network that is bad most of the time, by a seed.
testing::ObjectStore::Faults BadNetwork(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return [random](const ServedRequest&, int) {
    constexpr StoreFault kFaults[] = {
        StoreFault::kError500, StoreFault::kSlowDown,   StoreFault::kTimeout400,
        StoreFault::kNoAnswer, StoreFault::kLostAnswer, StoreFault::kCut,
        StoreFault::kShort,    StoreFault::kWrongPlace,
    };
    if (Once(*random, 2)) return StoreFault::kNone;
    return kFaults[Below(*random, std::size(kFaults))];
  };
}

std::string ReadAt(const ReadableFile& file, uint64_t offset, size_t n) {
  std::string bytes(n, '?');
  bytes.resize(file.ReadAt(offset, bytes.data(), n).ValueOrThrow());
  return bytes;
}

TEST_CASE("s3: objects of every size are read whole and in part") {
  RemoteFiles remote;
  std::mt19937 random(1);
  // Around the head (100), blocks (256), parts (1000) and strides (8000).
  for (const size_t size :
       {0, 1, 99, 100, 101, 999, 1000, 1001, 2000, 7999, 8000, 8001, 40'000}) {
    CAPTURE(size);
    const std::string bytes = RandomBytes(random, size);
    remote.store.Put("k", bytes);
    CHECK(*remote.files.Read("s3://b/k") == bytes);
    CHECK(*remote.files.Size("s3://b/k") == size);
    for (const size_t limit : {size_t{0}, size_t{1}, size / 2, size + 1}) {
      CHECK(*remote.files.ReadPrefix("s3://b/k", limit) ==
            bytes.substr(0, limit));
    }
    const auto file = *remote.files.OpenRead("s3://b/k");
    CHECK(file->size() == size);
    CHECK(ReadAt(*file, 0, size + 5) == bytes);
    CHECK(ReadAt(*file, size, 1).empty());
    CHECK(ReadAt(*file, UINT64_MAX, 1).empty());
  }
}

TEST_CASE("s3: an object tells when it was put, to the second") {
  RemoteFiles remote;
  remote.store.Put("k", "x");
  const auto put =
      std::chrono::system_clock::from_time_t(remote.store.Get("k").put);
  const auto written = (*remote.files.OpenRead("s3://b/k"))->written();
  REQUIRE(written.has_value());
  CHECK((*written - put == std::chrono::milliseconds(999)));
  remote.store.SetTimeless(true);
  CHECK_FALSE((*remote.files.OpenRead("s3://b/k"))->written().has_value());
}

TEST_CASE("s3: a small object is one request, a large one parallel parts") {
  RemoteFiles remote;
  remote.store.Put("small", std::string(1000, 'x'));
  CHECK(remote.files.Read("s3://b/small").ok());
  CHECK(remote.store.Count("GET") == 1);
  CHECK(remote.store.Count("HEAD") == 0);
  remote.store.ResetCounts();
  remote.store.Put("large", std::string(40'000, 'x'));
  CHECK(remote.files.Read("s3://b/large").ok());
  CHECK(remote.store.Count("GET") == 40);
  // Opening brings the size and the first bytes.
  remote.store.ResetCounts();
  const auto file = *remote.files.OpenRead("s3://b/large");
  CHECK(ReadAt(*file, 10, 20) == std::string(20, 'x'));
  CHECK(remote.store.Count("GET") == 1);
}

TEST_CASE("s3: random reads under faults give the object's bytes") {
  RemoteFiles remote;
  std::mt19937 random(2);
  const std::string bytes = RandomBytes(random, 20'000);
  remote.store.Put("k", bytes);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    remote.store.Fail(seed == 0 ? nullptr : BadNetwork(seed));
    const auto file = *remote.files.OpenRead("s3://b/k");
    uint64_t at = 0;
    for (int i = 0; i < 150; ++i) {
      // Runs, with gaps and steps back, and jumps.
      if (Once(random, 5)) at = Below(random, bytes.size() + 10);
      const size_t n =
          Once(random, 10) ? Below(random, 5000) : Below(random, 300);
      REQUIRE(ReadAt(*file, at, n) ==
              (at < bytes.size() ? bytes.substr(at, n) : ""));
      at += Once(random, 3) ? Below(random, 600) : n;
    }
    REQUIRE(*remote.files.Read("s3://b/k") == bytes);
  }
}

TEST_CASE("s3: several threads read one file under faults") {
  RemoteFiles remote;
  std::mt19937 random(3);
  const std::string bytes = RandomBytes(random, 10'000);
  remote.store.Put("k", bytes);
  remote.store.Fail(BadNetwork(9));
  const auto file = *remote.files.OpenRead("s3://b/k");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 mine(t);
      uint64_t at = t * 2000;
      for (int i = 0; i < 60; ++i) {
        const size_t n = Below(mine, 200);
        wrong += ReadAt(*file, at, n) != bytes.substr(at, n);
        at = Once(mine, 6) ? Below(mine, 9000) : std::min<size_t>(at + n, 9000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("s3: of an object replaced while it is read no bytes are mixed") {
  RemoteFiles remote;
  const std::string old(5000, 'a'), next(5000, 'b');
  remote.store.Put("k", old);
  const auto file = *remote.files.OpenRead("s3://b/k");
  CHECK(ReadAt(*file, 3000, 10) == std::string(10, 'a'));
  remote.store.Put("k", next);
  std::string out(100, '?');
  const Status error = file->ReadAt(2000, out.data(), 100).status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(error.message() == "'s3://b/k' was replaced while it was read");
  // Between the parts of one read, and between those of ReadAt.
  const std::string large(9000, 'a');
  for (int n = 2; n <= 9; ++n) {
    CAPTURE(n);
    for (const bool whole : {true, false}) {
      remote.store.Put("k", large);
      int number = 0;
      remote.store.Fail([&](const ServedRequest&, int) {
        return ++number == n ? StoreFault::kReplace : StoreFault::kNone;
      });
      const auto opened = whole ? nullptr : *remote.files.OpenRead("s3://b/k");
      std::string bytes(large.size(), '?');
      const Status status =
          whole ? remote.files.Read("s3://b/k").status()
                : opened->ReadAt(0, bytes.data(), bytes.size()).status();
      CHECK(status.code() == Code::kUnavailable);
      CHECK(Contains(status.message(), "was replaced"));
      CHECK(bytes.find('!') == std::string::npos);
    }
  }
}

// BadExamples passes over what is missing or may not be read.
TEST_CASE("s3: an open object that is refused or removed is no bad example") {
  RemoteFiles remote;
  const std::string bytes(20'000, 'a');
  for (const size_t n : {10, 500, 5000}) {  // with what is read ahead, in parts
    CAPTURE(n);
    remote.store.Put("k", bytes);
    const auto file = *remote.files.OpenRead("s3://b/k");
    const auto error = [&](uint64_t offset) {
      std::string out(n, '?');
      return file->ReadAt(offset, out.data(), n).status();
    };
    CHECK(error(1000).ok());
    CHECK(error(1000 + n).ok());
    remote.store.Fail(
        [](const ServedRequest&, int) { return StoreFault::kForbidden; });
    const Status refused = error(15'000);
    CHECK(refused.code() == Code::kUnavailable);
    CHECK(Contains(refused.message(), "permission denied"));
    CHECK(Contains(refused.message(), "s3://b/k"));
    remote.store.Fail(nullptr);
    CHECK(error(15'000).ok());
    REQUIRE(remote.files.Remove("s3://b/k").ok());
    const Status removed = error(5000);
    CHECK(removed.code() == Code::kUnavailable);
    CHECK(Contains(removed.message(), "no such object"));
  }
}

TEST_CASE("s3: errors say what is wrong with which object") {
  RemoteFiles remote;
  const auto error = [&](const std::string& path) {
    return remote.files.Read(path).status();
  };
  CHECK(error("s3://b/none").code() == Code::kNotFound);
  CHECK(error("s3://b/none").message() ==
        "cannot read 's3://b/none': no such object");
  CHECK(error("s3://other/none").code() == Code::kNotFound);
  CHECK(error("s3://other/none").message() ==
        "cannot read 's3://other/none': no such bucket");
  CHECK(error("s3://b").code() == Code::kInvalidArgument);
  CHECK(error("s3://b/").code() == Code::kInvalidArgument);
  CHECK(error("s3://").code() == Code::kInvalidArgument);
  remote.store.SetPrivate(true);
  CHECK(error("s3://b/k").code() == Code::kFailedPrecondition);
  CHECK(Contains(error("s3://b/k").message(), "permission denied"));
  CHECK(Contains(error("s3://b/k").message(), "AccessDenied"));
  for (const Status& status :
       {remote.files.WriteAtomically("s3://b/k", "x"),
        remote.files.Create("s3://b/k").ValueOrThrow()->Close(),
        remote.files.OpenAppend("s3://b/k").status(),
        remote.files.Rename("s3://b/k", "s3://b/l")}) {
    CHECK(status.code() == Code::kUnavailable);
    CHECK(Contains(status.message(), "permission denied"));
  }
  CHECK(remote.files.Size("s3://b/k").status().code() ==
        Code::kFailedPrecondition);
  CHECK(remote.files.List("s3://b/").status().code() ==
        Code::kFailedPrecondition);
  CHECK(remote.files.Exists("s3://b/k").status().code() ==
        Code::kFailedPrecondition);
}

// What may not be seen is not what is not there.
TEST_CASE("s3: nothing is taken for missing but what is") {
  using testing::StoreFault;
  RemoteFiles remote;
  remote.store.Put("dir/k", "bytes");
  for (const StoreFault fault :
       {StoreFault::kForbidden, StoreFault::kError500, StoreFault::kNoAnswer}) {
    for (const std::string method : {"HEAD", "GET"}) {  // GET: the listing
      for (const std::string path :
           {"s3://b/dir/k", "s3://b/dir", "s3://b/none", "s3://b"}) {
        CAPTURE(method);
        CAPTURE(path);
        int met = 0;
        remote.store.Fail([&](const testing::ServedRequest& request, int) {
          if (request.method != method) return StoreFault::kNone;
          ++met;
          return fault;
        });
        const Result<bool> there = remote.files.Exists(path);
        if (met == 0) {
          CHECK(*there);  // it was known without that
        } else {
          REQUIRE(!there.ok());
          CHECK(Contains(there.status().message(), path));
          CHECK(there.status().code() == (fault == StoreFault::kForbidden
                                              ? Code::kFailedPrecondition
                                              : Code::kUnavailable));
        }
      }
    }
  }
  remote.store.Fail(nullptr);
  CHECK(*remote.files.Exists("s3://b/dir"));
  CHECK(!*remote.files.Exists("s3://b/none"));
}

TEST_CASE("s3: a server that is down is an error after a while, not for ever") {
  RemoteFiles remote;
  remote.store.Put("k", "bytes");
  REQUIRE(remote.files.Read("s3://b/k").ok());
  remote.store.Fail(
      [](const ServedRequest&, int) { return StoreFault::kSlowDown; });
  const Status error = remote.files.Read("s3://b/k").status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(Contains(error.message(),
                 "cannot read 's3://b/k': status 503 "
                 "(SlowDown: of the store), after"));
  remote.store.Fail(nullptr);
  CHECK(*remote.files.Read("s3://b/k") == "bytes");
}

TEST_CASE("s3: no credentials, and ones that come later") {
  RemoteFiles remote;
  remote.store.Put("k", "bytes");
  bool have = false;
  const Environment some = remote.store.environment();
  S3Files files(
      *remote.client,
      [&](const char* name) -> std::optional<std::string> {
        const bool secret = std::string_view(name).starts_with("AWS_ACCESS") ||
                            std::string_view(name).starts_with("AWS_SECRET");
        if (secret && !have) return std::nullopt;
        return some(name);
      },
      remote.clock);
  const Status error = files.Read("s3://b/k").status();
  CHECK(error.code() == Code::kUnavailable);  // not the object's fault
  CHECK(Contains(error.message(), "cannot read 's3://b/k'"));
  CHECK(Contains(error.message(), "AWS_ACCESS_KEY_ID"));
  have = true;
  CHECK(*files.Read("s3://b/k") == "bytes");
  // Wrong ones are no object's fault either.
  S3Files wrong(
      *remote.client,
      [&](const char* name) {
        const bool secret = std::string_view(name).starts_with("AWS_SECRET");
        return secret ? std::optional<std::string>("wrong") : some(name);
      },
      remote.clock);
  const Status refused = wrong.Read("s3://b/k").status();
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(Contains(refused.message(), "the credentials are refused"));
}

TEST_CASE("s3: credentials that have expired are looked for again") {
  RemoteFiles remote;
  const std::string bytes(5000, 'a');
  remote.store.Put("k", bytes);
  std::string token = "old";
  const Environment other = remote.store.environment();
  S3Files files(
      *remote.client,
      [&](const char* name) -> std::optional<std::string> {
        if (std::string_view(name) == "AWS_SESSION_TOKEN") return token;
        return other(name);
      },
      remote.clock, SmallSizes());
  remote.store.Fail([](const ServedRequest& request, int) {
    return request.Header("x-amz-security-token") == "old"
               ? StoreFault::kExpired
               : StoreFault::kNone;
  });
  const Status error = files.Read("s3://b/k").status();
  CHECK(error.code() == Code::kUnavailable);  // not the object's fault
  CHECK(Contains(error.message(), "ExpiredToken"));
  CHECK(remote.store.Count("GET") == 0);
  token = *other("AWS_SESSION_TOKEN");
  CHECK(*files.Read("s3://b/k") == bytes);
}

TEST_CASE("s3: a clock that is wrong here is set by the server's") {
  for (const std::time_t ahead : {-86'400, 86'400}) {
    RemoteFiles remote;
    remote.store.SetClock(ahead);
    remote.store.Put("k", "bytes");
    CHECK(*remote.files.Size("s3://b/k") == 5);
    CHECK(*remote.files.Read("s3://b/k") == "bytes");
    CHECK(remote.clock.sleeps() == 0);
  }
}

TEST_CASE("s3: keys are bytes like others") {
  RemoteFiles remote;
  for (const std::string key :
       {"a b", "a+b", "a%b", "a%20b", "a?b=c&d", "a#b", "\xC3\xA4/\xE2\x82\xAC",
        "a//b", "./a/../b", "~a", "a\"<b>'", "/a", "a=b,c;d:e@f$g!h*(i)",
        "\x01\x7f"}) {
    CAPTURE(key);
    const std::string path = "s3://b/" + key;
    REQUIRE(remote.files.WriteAtomically(path, key).ok());
    CHECK(remote.store.Has(key));
    CHECK(*remote.files.Read(path) == key);
    CHECK(*remote.files.Exists(path));
    CHECK(remote.files.Rename(path, "s3://b/x/" + key).ok());
    CHECK(!remote.store.Has(key));
    const size_t slash = path.rfind('/');
    const auto names = remote.files.List(
        "s3://b/x/" + key.substr(0, slash >= 7 ? slash - 7 + 1 : 0));
    REQUIRE(names.ok());
    CHECK(*names == std::vector{path.substr(slash + 1)});
    CHECK(remote.files.Remove("s3://b/x/" + key).ok());
    CHECK(!*remote.files.Exists("s3://b/x/" + key));
  }
}

TEST_CASE("s3: folders are listed page by page") {
  for (const size_t page : {1, 2, 3, 1000}) {
    CAPTURE(page);
    RemoteFiles remote;
    remote.store.SetPage(page);
    using Names = std::vector<std::string>;
    CHECK(*remote.files.List("s3://b") == Names());
    for (const char* key : {"a", "b/1", "b/2", "b/sub/x", "b/sub/y", "b/sub2/x",
                            "b!", "ba", "b/", "empty/", "both", "both/x"}) {
      remote.store.Put(key, "x");
    }
    CHECK(*remote.files.List("s3://b") ==
          Names{"a", "b", "b!", "ba", "both", "empty"});
    CHECK(*remote.files.List("s3://b/b") == Names{"1", "2", "sub", "sub2"});
    CHECK(*remote.files.List("s3://b/b/") == Names{"1", "2", "sub", "sub2"});
    CHECK(*remote.files.List("s3://b/b/sub") == Names{"x", "y"});
    CHECK(*remote.files.List("s3://b/empty") == Names());
    CHECK(*remote.files.List("s3://b/none") == Names());
    CHECK(remote.files.List("s3://none").status().code() == Code::kNotFound);
    CHECK(*remote.files.Exists("s3://b"));
    CHECK(*remote.files.Exists("s3://b/b"));
    CHECK(*remote.files.Exists("s3://b/b/sub"));
    CHECK(*remote.files.Exists("s3://b/b/sub/x"));
    CHECK(!*remote.files.Exists("s3://b/b/su"));
    CHECK(!*remote.files.Exists("s3://none"));
    CHECK(remote.files.MakeDirectories("s3://b/new/folder").ok());
  }
  RemoteFiles remote;  // and under faults
  remote.store.SetPage(7);
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back(fmt::format("file-{:03}", i));
    remote.store.Put("d/" + names.back(), "x");
  }
  remote.store.Fail(BadNetwork(4));
  CHECK(*remote.files.List("s3://b/d") == names);
}

TEST_CASE("s3: a listing knows the versions that are asked for one by one") {
  RemoteFiles remote;
  remote.store.SetPage(3);
  std::mt19937 random(6);
  std::map<std::string, std::string> wanted;
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("a {}+", i);
    remote.store.Put("d/" + name, RandomBytes(random, Below(random, 50)));
    remote.store.Put("d/sub/" + name, "x");
    wanted[name] = *remote.files.Version("s3://b/d/" + name);
  }
  remote.store.Put("d/", "");
  remote.store.ResetCounts();
  for (const char* folder : {"s3://b/d", "s3://b/d/"}) {
    CHECK(*remote.files.Versions(folder) == wanted);
  }
  CHECK(remote.store.Count("HEAD") == 0);
  // Of the same size.
  const std::string size = wanted["a 7+"].substr(0, wanted["a 7+"].find(' '));
  remote.store.Put("d/a 7+", std::string(std::stoul(size) + 1, 'x'));
  const std::string longer = (*remote.files.Versions("s3://b/d"))["a 7+"];
  remote.store.Put("d/a 7+", std::string(std::stoul(size) + 1, 'y'));
  CHECK((*remote.files.Versions("s3://b/d"))["a 7+"] != longer);
  remote.store.Fail(BadNetwork(5));
  CHECK(remote.files.Versions("s3://b/d")->size() == 20);
  CHECK(remote.files.Versions("s3://b/none")->empty());
  CHECK(remote.files.Versions("s3://none").status().code() == Code::kNotFound);
}

TEST_CASE("s3: rename and remove") {
  RemoteFiles remote;
  remote.store.Put("a", "bytes");
  CHECK(remote.files.Rename("s3://b/a", "s3://b/c d").ok());
  CHECK(!remote.store.Has("a"));
  CHECK(remote.store.Get("c d").bytes == "bytes");
  CHECK(remote.files.Rename("s3://b/c d", "s3://b/c d").ok());
  CHECK(remote.store.Has("c d"));
  CHECK(remote.files.Rename("s3://b/a", "s3://b/x").code() == Code::kNotFound);
  CHECK(remote.files.Remove("s3://b/a").code() == Code::kNotFound);
  CHECK(remote.files.Remove("s3://b/c d").ok());
  // A copy that fails behind a status of 200 loses nothing.
  remote.store.Put("a", "bytes");
  int failures = 2;
  remote.store.Fail([&](const ServedRequest& request, int) {
    const bool copy = !request.Header("x-amz-copy-source").empty();
    return copy && failures-- > 0 ? StoreFault::kErrorIn200 : StoreFault::kNone;
  });
  CHECK(remote.files.Rename("s3://b/a", "s3://b/c").ok());
  CHECK(remote.store.Get("c").bytes == "bytes");
  remote.store.Fail([&](const ServedRequest& request, int) {
    const bool copy = !request.Header("x-amz-copy-source").empty();
    return copy ? StoreFault::kErrorIn200 : StoreFault::kNone;
  });
  CHECK(remote.files.Rename("s3://b/c", "s3://b/d").code() ==
        Code::kUnavailable);
  CHECK(remote.store.Has("c"));
}

}  // namespace
}  // namespace sluice::remote
#endif
