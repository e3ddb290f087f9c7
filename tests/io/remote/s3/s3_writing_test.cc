// Objects are written whole or not at all, under faults too.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>

#include <random>

#include "io/remote/s3/s3_files.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using testing::Below;
using testing::CompletesUpload;
using testing::Contains;
using testing::Once;
using testing::RandomBytes;
using testing::RemoteFiles;
using testing::ServedRequest;
using testing::SmallSizes;
using testing::StoreFault;

bool PutsPart(const ServedRequest& request, int number) {
  return request.method == "PUT" &&
         request.target.find(fmt::format("partNumber={}&", number)) !=
             std::string::npos;
}

// Cut into pieces at random.
std::vector<std::string_view> Pieces(std::mt19937& random,
                                     std::string_view bytes) {
  std::vector<std::string_view> pieces;
  while (!bytes.empty()) {
    const size_t n = std::min(Below(random, 1500), bytes.size());
    pieces.push_back(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  return pieces;
}

TEST_CASE("s3: WriteAtomically, by one request or in parts") {
  RemoteFiles remote;
  std::mt19937 random(1);
  for (const size_t size : {0, 1, 999, 1000, 1001, 1999, 2000, 2001, 10'000}) {
    for (int round = 0; round < 3; ++round) {
      CAPTURE(size);
      remote.store.ResetCounts();
      const std::string bytes = RandomBytes(random, size);
      REQUIRE(
          remote.files.WriteAtomically("s3://b/k", Pieces(random, bytes)).ok());
      CHECK(remote.store.Get("k").bytes == bytes);
      const bool parts = size > 1000;
      CHECK(remote.store.Count("PUT") == (parts ? 0 : 1));
      CHECK(remote.store.Count("PART") ==
            static_cast<int>(parts ? (size + 999) / 1000 : 0));
    }
  }
  CHECK(remote.store.OpenUploads() == 0);
  // There are 50 parts at most: larger objects have larger ones.
  remote.store.ResetCounts();
  const std::string bytes = RandomBytes(random, 123'456);
  REQUIRE(remote.files.WriteAtomically("s3://b/k", bytes).ok());
  CHECK(remote.store.Get("k").bytes == bytes);
  CHECK(remote.store.Count("PART") == 50);
}

TEST_CASE("s3: writes under faults are whole") {
  RemoteFiles remote;
  std::mt19937 random(2);
  remote.store.Fail([&](const ServedRequest& request, int) {
    constexpr StoreFault kFaults[] = {
        StoreFault::kError500, StoreFault::kSlowDown,   StoreFault::kTimeout400,
        StoreFault::kNoAnswer, StoreFault::kLostAnswer, StoreFault::kCut};
    if (Once(random, 2)) return StoreFault::kNone;
    // An upload whose first answer is lost is begun twice.
    const bool begins = request.target.find("uploads") != std::string::npos;
    const StoreFault fault = kFaults[Below(random, std::size(kFaults))];
    const bool done =
        fault == StoreFault::kLostAnswer || fault == StoreFault::kCut;
    return begins && done ? StoreFault::kNone : fault;
  });
  std::mt19937 sizes(3);
  for (int i = 0; i < 12; ++i) {
    const std::string bytes = RandomBytes(sizes, Below(sizes, 5000));
    REQUIRE(
        remote.files.WriteAtomically("s3://b/k", Pieces(sizes, bytes)).ok());
    CHECK(remote.store.Get("k").bytes == bytes);
  }
  CHECK(remote.store.OpenUploads() == 0);
}

TEST_CASE("s3: an upload that fails leaves what was there, and no parts") {
  RemoteFiles remote;
  const std::string bytes(5000, 'x');
  for (int part = 1; part <= 6; ++part) {
    CAPTURE(part);
    for (const char* old : {"", "old"}) {
      remote.store.Put("k", old);
      remote.store.ResetCounts();
      remote.store.Fail([&](const ServedRequest& request, int) {
        const bool fails =
            part <= 5 ? PutsPart(request, part) : CompletesUpload(request);
        return fails ? StoreFault::kError500 : StoreFault::kNone;
      });
      const Status error = remote.files.WriteAtomically("s3://b/k", bytes);
      CHECK(error.code() == Code::kUnavailable);
      CHECK(Contains(error.message(), "cannot write 's3://b/k': status 500"));
      CHECK(remote.store.Get("k").bytes == old);
      CHECK(remote.store.OpenUploads() == 0);
      CHECK(remote.store.Count("ABORT") == 1);
    }
  }
}

TEST_CASE(
    "s3: a completion may fail behind a status of 200, or succeed twice") {
  RemoteFiles remote;
  const std::string bytes(2500, 'x');
  int failures = 2;
  StoreFault fault = StoreFault::kErrorIn200;
  remote.store.Fail([&](const ServedRequest& request, int) {
    return CompletesUpload(request) && failures-- > 0 ? fault
                                                      : StoreFault::kNone;
  });
  CHECK(remote.files.WriteAtomically("s3://b/k", bytes).ok());
  CHECK(remote.store.Get("k").bytes == bytes);
  // Done, but the answer lost: the next try hears that there is no such upload.
  failures = 1;
  fault = StoreFault::kLostAnswer;
  CHECK(remote.files.WriteAtomically("s3://b/k2", bytes).ok());
  CHECK(remote.store.Get("k2").bytes == bytes);
  // It never succeeds.
  failures = 1000;
  fault = StoreFault::kErrorIn200;
  CHECK(remote.files.WriteAtomically("s3://b/k3", bytes).code() ==
        Code::kUnavailable);
  CHECK(!remote.store.Has("k3"));
  CHECK(remote.store.OpenUploads() == 0);
}

TEST_CASE("s3: a file appears when it is closed") {
  for (const size_t size : {0, 1, 1000, 1001, 2000, 4321}) {
    CAPTURE(size);
    RemoteFiles remote;
    std::mt19937 random(static_cast<uint32_t>(size));
    const std::string bytes = RandomBytes(random, size);
    remote.store.Put("k", "old");
    auto file = *remote.files.Create("s3://b/k");
    for (const std::string_view piece : Pieces(random, bytes)) {
      REQUIRE(file->Append(piece).ok());
      CHECK(remote.store.Get("k").bytes == "old");
    }
    REQUIRE(file->Close().ok());
    CHECK(remote.store.Get("k").bytes == bytes);
    // Destroyed without that: what was there stays.
    file = *remote.files.Create("s3://b/k");
    REQUIRE(file->Append(bytes + "more").ok());
    file.reset();
    CHECK(remote.store.Get("k").bytes == bytes);
    CHECK(remote.store.OpenUploads() == 0);
  }
}

TEST_CASE("s3: Sync of a new file puts it where it is one part") {
  RemoteFiles remote;
  auto file = *remote.files.Create("s3://b/k");
  REQUIRE(file->Append("one").ok());
  REQUIRE(file->Sync().ok());
  CHECK(remote.store.Get("k").bytes == "one");
  REQUIRE(file->Append(std::string(1500, '2')).ok());
  REQUIRE(file->Sync().ok());
  CHECK(remote.store.Get("k").bytes == "one");
  REQUIRE(file->Close().ok());
  CHECK(remote.store.Get("k").bytes == "one" + std::string(1500, '2'));
  // Nothing new: nothing is put.
  remote.store.ResetCounts();
  file = *remote.files.Create("s3://b/l");
  REQUIRE(file->Append("x").ok());
  REQUIRE(file->Sync().ok());
  REQUIRE(file->Close().ok());
  CHECK(remote.store.Count("PUT") == 1);
}

TEST_CASE("s3: of what grows the parts do, up to all that an object can have") {
  RemoteFiles remote;  // 50 parts, 1000 bytes the first
  std::mt19937 random(5);
  constexpr size_t kMost = 1'925'000;
  const std::string bytes = RandomBytes(random, kMost + 1);
  for (const size_t size : {size_t{5000}, size_t{5001}, kMost}) {
    CAPTURE(size);
    remote.store.ResetCounts();
    auto file = *remote.files.Create("s3://b/k");
    std::string_view rest = std::string_view(bytes).substr(0, size);
    while (!rest.empty()) {
      const size_t n = std::min(1 + Below(random, 30'000), rest.size());
      REQUIRE(file->Append(rest.substr(0, n)).ok());
      rest.remove_prefix(n);
    }
    REQUIRE(file->Close().ok());
    const bool same = remote.store.Get("k").bytes == bytes.substr(0, size);
    CHECK(same);
    const int parts = size == 5000 ? 5 : size == 5001 ? 6 : 50;
    CHECK(remote.store.Count("PART") == parts);
  }
  auto file = *remote.files.Create("s3://b/m");
  CHECK(file->Append(bytes).code() == Code::kResourceExhausted);
  CHECK(!file->Close().ok());
  CHECK(!remote.store.Has("m"));
  CHECK(remote.store.OpenUploads() == 0);
}

// As https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html has
// them.
TEST_CASE("s3: objects of all sizes keep to the limits of an upload") {
  constexpr uint64_t kMiB = 1 << 20, kGiB = kMiB << 10, kLargest = 5 << 10;
  const UploadSizes sizes;
  // Of known size.
  for (uint64_t size = 17 * kMiB; size <= kLargest * kGiB;
       size += size / 7 + 1) {
    CAPTURE(size);
    const uint64_t part = sizes.PartOf(size);
    CHECK(part >= 5 * kMiB);
    CHECK(part <= 5 * kGiB);
    CHECK((size + part - 1) / part <= 10'000);
  }
  CHECK(sizes.PartOf(5 * kGiB + 1) == 16 * kMiB);
  CHECK(sizes.copied_at_once == 5 * kGiB);
  // Of a size that nobody knows.
  uint64_t sum = 0;
  for (size_t i = 0; i < 10'000; ++i) {
    const uint64_t part = sizes.PartOfStream(i);
    REQUIRE(part >= 5 * kMiB);
    REQUIRE(part <= 5 * kGiB);
    // Little beside what is there already.
    REQUIRE(part <= std::max(16 * kMiB, sum / 100));
    sum += part;
  }
  CHECK(sum >= kLargest * kGiB);
  CHECK(sizes.PartOfStream(10'000) == 0);
}

TEST_CASE("s3: a log is put again whole, at intervals and at its end") {
  S3Options options = SmallSizes();
  options.append_interval = std::chrono::seconds(30);
  RemoteFiles remote(options);
  const auto stored = [&] { return remote.store.Get("log").bytes; };
  auto log = *remote.files.OpenAppend("s3://b/log");
  CHECK(stored().empty());  // it is there
  REQUIRE(log->Append("a").ok());
  CHECK(stored().empty());
  remote.clock.Sleep(std::chrono::seconds(31));
  REQUIRE(log->Append("b").ok());
  CHECK(stored() == "ab");
  REQUIRE(log->Append("c").ok());
  CHECK(stored() == "ab");
  REQUIRE(log->Sync().ok());
  CHECK(stored() == "abc");
  remote.store.ResetCounts();
  REQUIRE(log->Sync().ok());
  CHECK(remote.store.Count("PUT") == 0);
  REQUIRE(log->Append("d").ok());
  log.reset();
  CHECK(stored() == "abcd");
  // It goes on behind what was there, however long that is.
  log = *remote.files.OpenAppend("s3://b/log");
  const std::string more(3000, 'e');
  REQUIRE(log->Append(more).ok());
  REQUIRE(log->Close().ok());
  CHECK(stored() == "abcd" + more);
}

}  // namespace
}  // namespace sluice::remote
#endif
