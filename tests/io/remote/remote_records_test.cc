// Readers of records and pictures on an object store that fails half the time.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "io/checkpoints/safetensors.h"
#include "io/files/record.h"
#include "io/images/image.h"
#include "io/images/png.h"
#include "io/records/record_files.h"
#include "tests/support/error_text.h"
#include "tests/support/plain_pictures.h"
#include "tests/support/random_bytes.h"
#include "tests/support/remote_files.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Once;
using testing::RandomBytes;
using testing::RemoteFiles;
using testing::ServedRequest;
using testing::StoreFault;

testing::ObjectStore::Faults HalfOfThem(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return [random](const ServedRequest&, int) {
    constexpr StoreFault kFaults[] = {StoreFault::kError500, StoreFault::kCut,
                                      StoreFault::kNoAnswer,
                                      StoreFault::kShort};
    return Once(*random, 2) ? StoreFault::kNone
                            : kFaults[Below(*random, std::size(kFaults))];
  };
}

TEST_CASE("remote: records at random, from several shards") {
  RemoteFiles remote;
  std::mt19937 random(1);
  std::vector<std::string> paths, payloads;
  for (int shard = 0; shard < 3; ++shard) {
    std::string bytes;
    const size_t records = Below(random, 60);
    for (size_t i = 0; i < records; ++i) {
      payloads.push_back(RandomBytes(random, Below(random, 700)));
      AppendRecord(payloads.back(), &bytes);
    }
    paths.push_back(fmt::format("s3://b/train-{}", shard));
    REQUIRE(remote.files.WriteAtomically(paths.back(), bytes).ok());
  }
  remote.store.Fail(HalfOfThem(2));
  auto opened = RecordFiles::Open(paths, 2, remote.files);
  REQUIRE(opened.ok());
  const RecordFiles& records = **opened;
  REQUIRE(records.size() == static_cast<int64_t>(payloads.size()));
  std::vector<int64_t> order(payloads.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (const int64_t i : order) {
    const auto payload = records.Read(i);
    REQUIRE(payload.ok());
    CHECK(*payload == payloads[static_cast<size_t>(i)]);
  }
}

TEST_CASE("remote: more shards than are kept open are read without opening") {
  RemoteFiles remote;
  std::mt19937 random(5);
  std::vector<std::string> paths, payloads;
  for (int shard = 0; shard < 100; ++shard) {
    std::string bytes;
    for (int i = 0; i < 3; ++i) {
      payloads.push_back(RandomBytes(random, 50 + Below(random, 200)));
      AppendRecord(payloads.back(), &bytes);
    }
    paths.push_back(fmt::format("s3://b/train-{:03}", shard));
    remote.store.Put(paths.back().substr(7), bytes);
  }
  const auto records = RecordFiles::Open(paths, 4, remote.files).ValueOrThrow();
  std::vector<int64_t> order(payloads.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  remote.store.ResetCounts();
  for (const int64_t i : order) {
    REQUIRE(records->Read(i).ValueOrThrow() == payloads[i]);
  }
  // One a record, and a few that were read ahead.
  CHECK(remote.store.Count("GET") <= 330);
  CHECK(remote.store.Count("HEAD") == 0);
  // Another of the same size is not taken for it, whenever it was opened.
  std::string other = remote.store.Get("train-007").bytes;
  std::reverse(other.begin(), other.end());
  remote.store.Put("train-007", other);
  const Status changed = records->Read(7 * 3).status();
  CHECK(changed.code() == Code::kUnavailable);
  CHECK(testing::Contains(changed.message(),
                          "'s3://b/train-007' was replaced while it was read"));
  CHECK(records->Read(8 * 3).ok());
}

TEST_CASE("remote: safetensors there and back") {
  RemoteFiles remote;
  remote.store.Fail(HalfOfThem(3));
  std::vector<float> values(5000);
  std::iota(values.begin(), values.end(), 0.5f);
  const Tensor tensor = Tensor::Array<float>({50, 100}, values);
  const std::string path = "s3://b/model.safetensors";
  const NamedTensor named[] = {{"w", tensor}};
  REQUIRE(WriteSafetensors(path, named, {}, remote.files).ok());
  const auto back = ReadSafetensors(path, remote.files);
  REQUIRE(back.ok());
  REQUIRE(back->tensors.size() == 1);
  CHECK(back->tensors[0].tensor.BitEqual(tensor));
}

#if SLUICE_HAVE_PNG
TEST_CASE("remote: pictures") {
  RemoteFiles remote;
  const Tensor picture = testing::Picture(20, 30);
  const std::string bytes = EncodePng(picture).ValueOrThrow();
  remote.store.Put("dir/a picture.png", bytes);
  remote.store.Fail(HalfOfThem(4));
  const auto read = ReadImage("s3://b/dir/a picture.png", remote.files);
  REQUIRE(read.ok());
  CHECK(read->BitEqual(picture));
  CHECK(ReadImage("s3://b/none.png", remote.files).status().code() ==
        Code::kNotFound);
}
#endif

}  // namespace
}  // namespace sluice
#endif
