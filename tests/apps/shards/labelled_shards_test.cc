// Shards whose classes are some of a training's, in another order.
#include "apps/shards/labelled_shards.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "io/records/image_records.h"
#include "io/records/record_writer.h"
#include "tests/support/png_bytes.h"
#include "tests/support/tar_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice::shards {
namespace {

using testing::TemporaryFolder;

const std::string kPicture(testing::kPngMagic);

// Of pictures of "dog", "ant" and "dog", which that folder numbers 0 and 1.
std::vector<int64_t> Counts(const std::string& folder) {
  std::ofstream(folder + "/labels.txt") << "dog\nant\n";
  RunContext run;
  run.flags = {{"label-offset", "0"}, {"allow-missing-shards", "false"}};
  const TrainedClasses trained = {.count = 4,
                                  .names = {"ant", "bee", "cat", "dog"}};
  return LabelledShards(run, folder, trained, IfCompressed::kInOrder)
      .CountClasses(false);
}

const std::vector<int64_t> kLabels = {0, 1, 0};
const std::vector<int64_t> kCounts = {1, 0, 0, 2};

TEST_CASE("pictures are counted by the classes of the training") {
  const TemporaryFolder folder;
  std::string archive;
  for (size_t i = 0; i < kLabels.size(); ++i) {
    archive +=
        testing::TarFile(fmt::format("{}.cls", i), std::to_string(kLabels[i]));
    archive += testing::TarFile(fmt::format("{}.png", i), kPicture);
  }
  std::ofstream(folder / "train-000000.tar", std::ios::binary)
      << archive + testing::TarEnd();
  CHECK(Counts(folder.path()) == kCounts);
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("and so are those of records, compressed or not") {
  for (const Compression compression :
       {Compression::kNone, Compression::kGzip}) {
    const TemporaryFolder folder;
    const auto writer =
        RecordWriter::Create(folder / "train-00000-of-00001", compression)
            .ValueOrThrow();
    for (const int64_t label : kLabels) {
      const ImageRecord record = {.encoded = kPicture, .label = label};
      REQUIRE(writer->Write(EncodeImageRecord(record).ValueOrThrow()).ok());
    }
    REQUIRE(writer->Close().ok());
    CHECK(Counts(folder.path()) == kCounts);
  }
}
#endif

}  // namespace
}  // namespace sluice::shards
