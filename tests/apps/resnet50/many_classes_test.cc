// The resnet50 program on records of as many classes as it takes: a million.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "io/files/record.h"
#include "io/records/image_records.h"
#include "tests/places.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/sanitizers.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

using testing::Contains;
using testing::Outcome;
using testing::TemporaryFolder;

// A shard of pictures with these labels.
void WriteShard(const std::string& folder, const std::vector<int64_t>& labels) {
  testing::WritePicture(folder + "/picture.png", 36, 36);
  const std::string encoded = testing::TextOf(folder + "/picture.png");
  std::string shard;
  for (const int64_t label : labels) {
    AppendRecord(
        EncodeImageRecord({.encoded = encoded, .label = label}).ValueOrThrow(),
        &shard);
  }
  std::ofstream(folder + "/train-00000-of-00001", std::ios::binary) << shard;
}

Outcome Train(const std::string& folder, const std::string& classes) {
  return testing::RunResNet50({"train", "--data", folder, "--model", "resnet20",
                               "--classes", classes, "--batch-size", "2",
                               "--steps", "1", "--threads", "1"});
}

TEST_CASE("a million classes, of which the last is one") {
  // The variables alone take 0.8 GB, which a sanitizer would multiply.
  constexpr int64_t kClasses = testing::Rounds(1'000'000);
  const std::string classes = std::to_string(kClasses);
  const TemporaryFolder folder;
  const struct {
    std::vector<int64_t> labels;
    int64_t first;
  } cases[] = {{{0, kClasses - 1, kClasses / 2, 7}, 0},
               {{1, kClasses, kClasses / 2, 7}, 1}};
  for (const auto& [labels, first] : cases) {
    CAPTURE(first);
    WriteShard(folder.path(), labels);
    const Outcome trained = Train(folder.path(), classes);
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    CHECK(Contains(trained.err, fmt::format("labels begin at {}", first)));
    // All are about as likely at first.
    const size_t told = trained.out.find("training loss ");
    REQUIRE(told != std::string::npos);
    const double loss = std::stod(trained.out.substr(told + 14));
    CHECK(std::abs(loss - std::log(kClasses)) < 3);
  }
  WriteShard(folder.path(), {0, kClasses, 1, 2});
  const Outcome both = Train(folder.path(), classes);
  CHECK(both.code == 1);
  CHECK(Contains(both.err, classes));
  const Outcome more = Train(folder.path(), "1000001");
  CHECK(more.code == 2);
  CHECK(Contains(more.err,
                 "--classes: wanted a number from 0 to 1000000, got "
                 "'1000001'"));
}

}  // namespace
}  // namespace sluice
#endif
