// resnet50 --cache: wherever and by whomever pictures are kept, training gives
// the bits that it gives without.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/places.h"
#include "tests/support/cached_pictures.h"
#include "tests/support/last_object.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CachedPictures;
using testing::CheckResNet50Error;
using testing::Contains;
using testing::Outcome;
using testing::Process;
using testing::RunResNet50;
using testing::SameTensors;
using Strings = std::vector<std::string>;
using Tensors = std::vector<NamedTensor>;

const std::string kResNet50 = SLUICE_BIN_DIR "/resnet50";

TEST_CASE("in memory and in a folder, of either stage, filled and full") {
  CachedPictures pictures;
  const Tensors plain = pictures.Train({});
  std::string err;
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    CHECK(SameTensors(
        plain,
        pictures.Train({"--cache", "memory", "--cache-stage", stage}, &err)));
    CHECK(Contains(err, "are kept in memory, up to 4G in each process"));
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage), &err)));
    CHECK(Contains(err, fmt::format("are kept in '{}', up to 20G; 0 are there",
                                    pictures.cache)));
    const uint64_t bytes = pictures.CacheBytes();
    CHECK(bytes > 0);
    // Training pictures and those of the evaluations, each once.
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage), &err)));
    CHECK(Contains(err, "up to 20G; 32 are there"));
    CHECK(pictures.CacheBytes() == bytes);
    CHECK(!Contains(err, "removed"));
    Strings limited = pictures.Cached(stage);
    limited.insert(limited.end(), {"--cache-limit", "9K"});
    CHECK(SameTensors(plain, pictures.Train(limited, &err)));
    CHECK(Contains(err, "bytes, which were more than --cache-limit"));
    CHECK(pictures.CacheBytes() <= 9216);
    fs::remove_all(pictures.cache);
  }
}

TEST_CASE("a process killed while it fills, then two at once") {
  CachedPictures pictures;
  const Tensors plain = pictures.Train({});
  {
    const Process process(kResNet50,
                          pictures.Arguments(pictures.Cached(), "1000000"));
    // Where in its file the first picture is has been written for others by the
    // time that more is in it.
    uint64_t first = 0;
    for (int i = 0; i < 3000; ++i) {
      const uint64_t bytes = pictures.CacheBytes();
      if (first > 0 && bytes > first) break;
      first = bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process.Kill(SIGKILL);
    CHECK(process.Wait() == -SIGKILL);
    REQUIRE(pictures.CacheBytes() > 0);
  }
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<int> runs;
  for (int i = 0; i < 2; ++i) {
    processes.push_back(std::make_unique<Process>(
        kResNet50, pictures.Arguments(pictures.Cached())));
    runs.push_back(pictures.runs);
  }
  for (const auto& process : processes) {
    CHECK(process->Wait() == 0);
    CHECK(process->err().find(" 0 are there") == std::string::npos);
  }
  for (const int run : runs) CHECK(SameTensors(plain, pictures.Trained(run)));
}

TEST_CASE("no room, and no folder: it is said, and nothing else is changed") {
  CachedPictures pictures;
  const Tensors plain = pictures.Train({});
  std::string err;
  for (const std::string& where : {pictures.cache, std::string("memory")}) {
    CHECK(SameTensors(
        plain, pictures.Train({"--cache", where, "--cache-limit", "9K",
                               "--cache-stage", "image", "--log-every", "1"},
                              &err)));
    CHECK(Contains(err, "no more examples are kept in "));
    CHECK(Contains(err, "the limit of 9216 bytes is reached"));
  }
  CHECK(pictures.CacheBytes() <= 9216);
  CHECK(SameTensors(
      plain,
      pictures.Train({"--cache", "/proc/none", "--log-every", "1"}, &err)));
  CHECK(Contains(err, "no more examples are kept in '/proc/none': "));
  const auto refused = [&](const Strings& more, const std::string& part) {
    CheckResNet50Error(RunResNet50(pictures.Arguments(more)), 2, part);
  };
  refused({"--cache", "memory", "--cache-limit", "0"}, "--cache-limit: wanted");
  refused({"--cache", "memory", "--cache-limit", "2X"},
          "wanted bytes such as 500M, 20G or 1T, up to 1024T, got '2X'");
  refused({"--cache-limit", "1G"}, "--cache-limit is for --cache");
  refused({"--cache", "s3://bucket/cache"},
          "wanted a folder of this machine, got 's3://bucket/cache'");
  CheckResNet50Error(RunResNet50({"train", "--cache", "memory"}), 2,
                     "--cache is for --data with a folder");
}

// What is trained, as its last line has it.
nlohmann::ordered_json Figures(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  auto last = testing::LastObject(outcome.out);
  last.erase("seconds");
  last.erase("examples_per_second");
  return last;
}

TEST_CASE("a disk that takes no more: it is said, and nothing else changes") {
  CachedPictures pictures;
  // Files end at 64 KB, where a disk would be full: without a log folder none
  // but the cache's is so long.
  const auto train = [&](const Strings& more) {
    Strings arguments = {"-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "-",
                         SLUICE_BIN_DIR "/resnet50"};
    for (const std::string& argument : pictures.Arguments(more)) {
      arguments.push_back(argument);
    }
    const auto log = std::find(arguments.begin(), arguments.end(), "--log-dir");
    arguments.erase(log, log + 2);
    arguments.emplace_back("--json");
    return testing::RunProgram("/bin/bash", arguments);
  };
  const auto plain = Figures(train({}));
  const Outcome full = train(pictures.Cached("image"));
  CHECK(Figures(full) == plain);
  CAPTURE(full.err);
  CHECK(Contains(full.err, "no more examples are kept in '" + pictures.cache));
  CHECK(pictures.CacheBytes() > 0);
  CHECK(Figures(train(pictures.Cached("image"))) == plain);
}

}  // namespace
}  // namespace sluice
#endif
