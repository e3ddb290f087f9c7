// resnet50 --cache with shards that are replaced, or moved away, between two
// epochs of a training, which goes on from what it has open: in this process,
// so that it is between them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/resnet50/records.h"
#include "io/files/file.h"
#include "io/images/png.h"
#include "io/records/image_records.h"
#include "io/records/record_writer.h"
#include "tests/support/tar_bytes.h"
#include "tests/support/temporary_folder.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

using resnet50::RecordPictures;
using testing::TarEnd;
using testing::TarFile;
using testing::TemporaryFolder;
using Epoch = std::vector<Example>;

constexpr int64_t kPictures = 40;

std::string Picture(int64_t number) {
  Tensor image(DType::kUInt8, {32, 32, 3});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>((number * 29 + i) % 251);
  }
  return EncodePng(image).ValueOrThrow();
}

// The second of 40 is none of the 16 that tell data sets apart.
int64_t LabelOf(int64_t number, bool replaced) {
  return replaced && number == 1 ? 7 : number % 5;
}

// Both leave what has the shard's name alone, and take its name.
void WriteRecords(const std::string& folder, bool replaced) {
  const auto writer =
      RecordWriter::Create(folder + "/train-00000-of-00001").ValueOrThrow();
  for (int64_t i = 0; i < kPictures; ++i) {
    const std::string picture = Picture(i);
    const ImageRecord record = {.encoded = picture,
                                .label = LabelOf(i, replaced)};
    REQUIRE(writer->Write(EncodeImageRecord(record).ValueOrThrow()).ok());
  }
  REQUIRE(writer->Close().ok());
}

void WriteTar(const std::string& folder, bool replaced) {
  std::string archive;
  for (int64_t i = 0; i < kPictures; ++i) {
    archive += TarFile(fmt::format("{:04}.cls", i),
                       std::to_string(LabelOf(i, replaced)));
    archive += TarFile(fmt::format("{:04}.png", i), Picture(i));
  }
  REQUIRE(FileSystem::Default()
              .WriteAtomically(folder + "/train-000000.tar", archive + TarEnd())
              .ok());
}

RunContext Training(const std::string& data, const std::string& cache = "",
                    const std::string& stage = "bytes",
                    const std::string& limit = "") {
  RunContext run;
  run.seed = 4;
  run.flags = {{"data", data},        {"model", "resnet20"},
               {"classes", "10"},     {"label-offset", "0"},
               {"augment", ""},       {"exif", "false"},
               {"ten-crop", ""},      {"allow-missing-shards", "false"},
               {"cache", cache},      {"cache-stage", stage},
               {"cache-limit", limit}};
  return run;
}

// Two epochs.
Iterator Read(const RunContext& run) {
  const RecordPictures pictures(run);
  return pictures.Records(run)
      .Take(2 * kPictures)
      .MapRandom(run.seed, pictures.ToPicture(run), {.bad = run.bad_examples})
      .MakeIterator();
}

Epoch NextOf(Iterator* iterator) {
  Epoch epoch(kPictures);
  for (Example& example : epoch) {
    REQUIRE(iterator->Next(&example).ValueOrThrow());
    CHECK(example.passed_over() == 0);
  }
  return epoch;
}

bool Same(const Epoch& a, const Epoch& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Example& p, const Example& q) {
                      return p["image"].BitEqual(q["image"]) &&
                             p["label"].BitEqual(q["label"]);
                    });
}

TEST_CASE("what is read of a shard that has been replaced is not kept") {
  for (const auto write : {WriteRecords, WriteTar}) {
    for (const std::string stage : {"bytes", "image"}) {
      CAPTURE((write == WriteTar));
      CAPTURE(stage);
      const TemporaryFolder folder;
      const std::string data = folder / "data", cache = folder / "cache";
      std::filesystem::create_directory(data);
      write(data, false);
      Iterator plain = Read(Training(data));
      Iterator cached = Read(Training(data, cache, stage));
      const std::string begin = plain.SavePosition();
      const Epoch old = NextOf(&plain);
      CHECK(Same(NextOf(&cached), old));
      write(data, true);
      CHECK(Same(NextOf(&cached), NextOf(&plain)));

      // As later processes do; another limit makes another cache.
      Iterator later = Read(Training(data));
      CHECK(later.SavePosition() == begin);
      const Epoch now = NextOf(&later);
      CHECK(!Same(now, old));
      for (const std::string limit : {"1G", "2G"}) {
        CAPTURE(limit);
        Iterator again = Read(Training(data, cache, stage, limit));
        CHECK(Same(NextOf(&again), now));
      }
    }
  }
}

TEST_CASE("shards that have been moved away are no bad pictures") {
  for (const auto write : {WriteRecords, WriteTar}) {
    CAPTURE((write == WriteTar));
    const TemporaryFolder folder;
    const std::string data = folder / "data";
    std::filesystem::create_directory(data);
    write(data, false);
    RunContext run = Training(data, folder / "cache");
    run.bad_examples = std::make_shared<BadExamples>(1);
    Iterator plain = Read(Training(data)), cached = Read(run);
    CHECK(Same(NextOf(&cached), NextOf(&plain)));
    std::filesystem::rename(data, folder / "elsewhere");
    CHECK(Same(NextOf(&cached), NextOf(&plain)));
    CHECK(run.bad_examples->count() == 0);
  }
}

}  // namespace
}  // namespace sluice
#endif
