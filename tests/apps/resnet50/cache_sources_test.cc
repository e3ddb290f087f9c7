// resnet50 --cache with pictures that change or are damaged, and in records:
// training gives the bits that it gives without.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.h"
#include "tests/support/cached_pictures.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CachedPictures;
using testing::Contains;
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::SameTensors;
using Strings = std::vector<std::string>;
using Tensors = std::vector<NamedTensor>;

TEST_CASE("a picture that has changed is read anew") {
  CachedPictures pictures;
  const std::string changed = pictures.data + "/train/bee/3.png";
  const std::string other = pictures.data + "/train/dog/1.png";
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    const Tensors before = pictures.Train(pictures.Cached(stage));
    // As large as before, as far as that can be, and as old.
    const auto time = fs::last_write_time(changed);
    const std::string bytes = testing::TextOf(changed);
    fs::copy_file(other, changed, fs::copy_options::overwrite_existing);
    fs::last_write_time(changed, time);
    const Tensors cached = pictures.Train(pictures.Cached(stage));
    CHECK(SameTensors(cached, pictures.Train({})));
    CHECK(!SameTensors(cached, before));
    std::ofstream(changed, std::ios::binary) << bytes;
    CHECK(SameTensors(before, pictures.Train(pictures.Cached(stage))));
  }
}

TEST_CASE("a damaged picture is passed over as it is without a cache") {
  CachedPictures pictures;
  const std::string damaged = pictures.data + "/train/cat/2.png";
  fs::resize_file(damaged, fs::file_size(damaged) / 2);
  const Strings skip = {"--skip-bad", "1"};
  std::string wanted, err;
  const Tensors plain = pictures.Train(skip, &wanted);
  CHECK(Contains(wanted, "cat/2.png"));
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    Strings cached = pictures.Cached(stage);
    cached.insert(cached.end(), skip.begin(), skip.end());
    for (int i = 0; i < 2; ++i) {
      CHECK(SameTensors(plain, pictures.Train(cached, &err)));
      CHECK(Contains(err, "cat/2.png"));
    }
  }
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("pictures in records, of which a shard changes") {
  CachedPictures pictures;
  const std::string files = pictures.data;
  pictures.data = pictures.folder / "records";
  const auto make = [&] {
    fs::remove_all(pictures.data);
    for (const auto& [from, part] :
         {std::pair("/train", "train"), {"/val", "validation"}}) {
      const Outcome made =
          RunProgram(SLUICE_BIN_DIR "/sluice",
                     {"data", "make", files + from, pictures.data, "--part",
                      part, "--shards", "2"});
      REQUIRE_MESSAGE(made.code == 0, made.err);
    }
  };
  make();
  const Tensors plain = pictures.Train({});
  std::string err;
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    for (int i = 0; i < 2; ++i) {
      CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage), &err)));
    }
    CHECK(Contains(err, "32 are there"));
  }
  fs::copy_file(files + "/train/dog/1.png", files + "/train/bee/3.png",
                fs::copy_options::overwrite_existing);
  make();
  const Tensors changed = pictures.Train({});
  CHECK(!SameTensors(changed, plain));
  for (const std::string stage : {"bytes", "image"}) {
    CHECK(SameTensors(changed, pictures.Train(pictures.Cached(stage))));
  }
  // Predictions know no labels, and do not take theirs away from training.
  const Outcome predicted = RunResNet50(
      {"predict", "--data", pictures.data, "--model", "resnet20", "--log-dir",
       pictures.LogOf(pictures.runs), "--cache", pictures.cache});
  CHECK_MESSAGE(predicted.code == 0, predicted.err);
  CHECK(SameTensors(changed, pictures.Train(pictures.Cached())));
}
#endif

}  // namespace
}  // namespace sluice
#endif
