// Objects are renamed within a store whole or not at all, also where they are
// too large to be copied by one request.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "io/files/record.h"
#include "io/records/record_files.h"
#include "io/records/record_writer.h"
#include "io/remote/s3/s3_files.h"
#include "tests/support/answering_client.h"
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

constexpr size_t kAtOnce = 5000;  // bytes

S3Options Limits() {
  S3Options options = SmallSizes();
  options.upload.copied_at_once = kAtOnce;
  return options;
}

// A store that refuses to copy more by one request, as Amazon's does with what
// is larger than 5 GiB.
struct LimitedFiles : RemoteFiles {
  explicit LimitedFiles(const S3Options& options = Limits())
      : RemoteFiles(options) {
    store.SetCopyLimit(kAtOnce);
  }
};

bool CopiesPart(const ServedRequest& request, int number) {
  return !request.Header("x-amz-copy-source").empty() &&
         request.target.find(fmt::format("partNumber={}&", number)) !=
             std::string::npos;
}

TEST_CASE("s3: objects of every size are renamed, large ones in parts") {
  LimitedFiles remote;
  std::mt19937 random(1);
  for (const size_t size :
       {0, 1, 4999, 5000, 5001, 6000, 12'345, 50'000, 60'001}) {
    CAPTURE(size);
    const std::string bytes = RandomBytes(random, size);
    remote.store.Put("a b/c+%20", bytes);
    remote.store.Put("to", "old");
    remote.store.ResetCounts();
    REQUIRE(remote.files.Rename("s3://b/a b/c+%20", "s3://b/to").ok());
    const bool same = remote.store.Get("to").bytes == bytes;
    CHECK(same);
    CHECK(!remote.store.Has("a b/c+%20"));
    // Of 1000 bytes each, and 50 at most.
    const size_t parts = size > 50'000 ? 50 : (size + 999) / 1000;
    const bool large = size > kAtOnce;
    CHECK(remote.store.Count("COPY") == (large ? 0 : 1));
    CHECK(remote.store.Count("PARTCOPY") ==
          static_cast<int>(large ? parts : 0));
    CHECK(remote.store.OpenUploads() == 0);
  }
  // One by one request is what the store refuses.
  LimitedFiles whole(SmallSizes());
  const std::string bytes(kAtOnce + 1, 'x');
  whole.store.Put("from", bytes);
  const Status refused = whole.files.Rename("s3://b/from", "s3://b/to");
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(Contains(refused.message(), "InvalidRequest"));
  CHECK(whole.store.Has("from"));
}

TEST_CASE("s3: a shard larger than what is copied at once is finished") {
  LimitedFiles remote;
  std::mt19937 random(2);
  const std::string name = "train-00000-of-00001", path = "s3://b/" + name;
  std::vector<std::string> payloads;
  std::string wanted;
  {
    const auto writer =
        RecordWriter::Create(path, Compression::kNone, remote.files)
            .ValueOrThrow();
    for (int i = 0; i < 40; ++i) {
      payloads.push_back(RandomBytes(random, 300 + Below(random, 400)));
      AppendRecord(payloads.back(), &wanted);
      REQUIRE(writer->Write(payloads.back()).ok());
    }
    const Status closed = writer->Close();
    REQUIRE_MESSAGE(closed.ok(), closed.message());
  }
  const bool same = remote.store.Get(name).bytes == wanted;
  CHECK(same);
  CHECK(remote.store.Count("PARTCOPY") > 1);
  CHECK(remote.store.OpenUploads() == 0);
  CHECK(*remote.files.List("s3://b") ==
        std::vector<std::string>{name, name + ".idx"});
  const auto records =
      RecordFiles::Open({path}, 1, remote.files).ValueOrThrow();
  REQUIRE(records->size() == std::ssize(payloads));
  for (size_t i = 0; i < payloads.size(); ++i) {
    CHECK(*records->Read(static_cast<int64_t>(i)) == payloads[i]);
  }
}

TEST_CASE("s3: checkpoints larger than what is copied at once are set aside") {
  LimitedFiles remote;
  auto manager = CheckpointManager::Open("s3://b/run", {.files = &remote.files})
                     .ValueOrThrow();
  Checkpoint checkpoint;
  checkpoint.state.step = 7;
  checkpoint.tensors = {
      {"weights", Tensor::Full(DType::kFloat32, {50, 60}, 0.5)}};
  REQUIRE(manager.Save(checkpoint).ok());
  const std::string name = "checkpoint-7.safetensors";
  const std::string bytes = remote.store.Get("run/" + name).bytes;
  REQUIRE(bytes.size() > kAtOnce);
  const auto folder = manager.SetAside({});
  REQUIRE_MESSAGE(folder.ok(), folder.status().message());
  CHECK(*folder == "s3://b/run/previous-1");
  const bool same = remote.store.Get("run/previous-1/" + name).bytes == bytes;
  CHECK(same);
  CHECK(!remote.store.Has("run/" + name));
  CHECK(remote.store.OpenUploads() == 0);
}

TEST_CASE("s3: renames in parts under faults are whole") {
  LimitedFiles remote;
  std::mt19937 random(3), sizes(4);
  remote.store.Put("from", "x");
  REQUIRE(remote.files.Read("s3://b/from").ok());  // the server answers
  remote.store.Fail([&](const ServedRequest& request, int) {
    constexpr StoreFault kFaults[] = {
        StoreFault::kError500, StoreFault::kSlowDown,
        StoreFault::kNoAnswer, StoreFault::kLostAnswer,
        StoreFault::kCut,      StoreFault::kErrorIn200};
    if (Once(random, 2)) return StoreFault::kNone;
    const StoreFault fault = kFaults[Below(random, std::size(kFaults))];
    // An upload whose first answer is lost is begun twice.
    const bool begins = request.target.find("uploads") != std::string::npos;
    const bool done =
        fault == StoreFault::kLostAnswer || fault == StoreFault::kCut;
    if (begins && done) return StoreFault::kNone;
    const bool copies = !request.Header("x-amz-copy-source").empty();
    return fault == StoreFault::kErrorIn200 && !copies ? StoreFault::kNone
                                                       : fault;
  });
  for (int i = 0; i < 8; ++i) {
    const std::string bytes = RandomBytes(sizes, 3000 + Below(sizes, 9000));
    remote.store.Put("from", bytes);
    const Status status = remote.files.Rename("s3://b/from", "s3://b/to");
    REQUIRE_MESSAGE(status.ok(), status.message());
    const bool same = remote.store.Get("to").bytes == bytes;
    CHECK(same);
    CHECK(!remote.store.Has("from"));
  }
  CHECK(remote.store.OpenUploads() == 0);
}

TEST_CASE("s3: a rename in parts that fails changes nothing") {
  LimitedFiles remote;
  const std::string bytes(5500, 'x');
  remote.store.Put("from", bytes);
  remote.store.Put("to", "old");
  for (int part = 1; part <= 7; ++part) {  // 7: all are there, and it fails
    CAPTURE(part);
    remote.store.ResetCounts();
    remote.store.Fail([&](const ServedRequest& request, int) {
      const bool fails =
          part <= 6 ? CopiesPart(request, part) : CompletesUpload(request);
      return fails ? StoreFault::kErrorIn200 : StoreFault::kNone;
    });
    const Status error = remote.files.Rename("s3://b/from", "s3://b/to");
    CHECK(error.code() == Code::kUnavailable);
    CHECK(Contains(error.message(),
                   part <= 6 ? "cannot copy 's3://b/from' to 's3://b/to': "
                               "status 200 with InternalError"
                             : "cannot write 's3://b/to': status 200 with "
                               "InternalError"));
    CHECK(remote.store.Get("to").bytes == "old");
    const bool same = remote.store.Get("from").bytes == bytes;
    CHECK(same);
    CHECK(remote.store.OpenUploads() == 0);
    CHECK(remote.store.Count("ABORT") == 1);
  }
}

TEST_CASE("s3: of an object replaced while it is renamed nothing is mixed") {
  LimitedFiles remote;
  const std::string next(9000, 'b');
  remote.store.Put("from", std::string(9000, 'a'));
  testing::AnsweringClient client;
  std::atomic<bool> replaced = false;
  client.answer = [&](const HttpRequest& request) {
    const bool third = request.url.find("partNumber=3&") != std::string::npos;
    if (third && !replaced.exchange(true)) remote.store.Put("from", next);
    return remote.client->Send(request);
  };
  S3Files files(client, remote.store.environment(), remote.clock, Limits());
  const Status error = files.Rename("s3://b/from", "s3://b/to");
  CHECK(replaced.load());
  CHECK(error.code() == Code::kUnavailable);
  CHECK(Contains(error.message(), "PreconditionFailed"));
  CHECK(!remote.store.Has("to"));
  const bool same = remote.store.Get("from").bytes == next;
  CHECK(same);
  CHECK(remote.store.OpenUploads() == 0);
}

}  // namespace
}  // namespace sluice::remote
#endif
