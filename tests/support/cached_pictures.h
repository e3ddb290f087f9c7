// Trainings of resnet50 with --cache, to compare with those without.
#ifndef SLUICE_TESTS_SUPPORT_CACHED_PICTURES_H_
#define SLUICE_TESTS_SUPPORT_CACHED_PICTURES_H_

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG
namespace sluice::testing {

// 4 classes of 6 pictures in `train`, of 2 in `val`.
struct CachedPictures {
  TemporaryFolder folder;
  std::string data = folder / "data", cache = folder / "cache";
  int runs = 0;

  CachedPictures() {
    WriteClasses(data + "/train", {"ant", "bee", "cat", "dog"}, 6);
    WriteClasses(data + "/val", {"ant", "bee", "cat", "dog"}, 2);
  }
  // Of two epochs and a half, unless there are more steps.
  std::vector<std::string> Arguments(const std::vector<std::string>& more,
                                     const std::string& steps = "8") {
    std::vector<std::string> arguments = {"train",
                                          "--data",
                                          data,
                                          "--model",
                                          "resnet20",
                                          "--batch-size",
                                          "8",
                                          "--steps",
                                          steps,
                                          "--seed",
                                          "4",
                                          "--augment",
                                          "jitter(0.4)",
                                          "--threads",
                                          "1",
                                          "--deterministic",
                                          "--input-threads",
                                          "2",
                                          "--log-dir",
                                          LogOf(++runs)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string LogOf(int run) const {
    return folder / fmt::format("log{}", run);
  }
  std::vector<NamedTensor> Trained(int run) const {
    return ReadCheckpoint(LogOf(run) + "/checkpoint-8.safetensors")
        .ValueOrThrow()
        .tensors;
  }
  // What it has trained; `err` is what it has said.
  std::vector<NamedTensor> Train(const std::vector<std::string>& more,
                                 std::string* err = nullptr) {
    const Outcome outcome = RunResNet50(Arguments(more));
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    if (err != nullptr) *err = outcome.err;
    return Trained(runs);
  }
  std::vector<std::string> Cached(const std::string& stage = "bytes") const {
    return {"--cache", cache, "--cache-stage", stage};
  }
  uint64_t CacheBytes() const {
    uint64_t bytes = 0;
    if (!std::filesystem::exists(cache)) return 0;
    for (const auto& entry : std::filesystem::directory_iterator(cache)) {
      if (entry.path().extension() == ".examples") bytes += entry.file_size();
    }
    return bytes;
  }
};

inline bool SameTensors(const std::vector<NamedTensor>& a,
                        const std::vector<NamedTensor>& b) {
  return !a.empty() &&
         std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const NamedTensor& p, const NamedTensor& q) {
                      return p.name == q.name && p.tensor.BitEqual(q.tensor);
                    });
}

}  // namespace sluice::testing
#endif

#endif  // SLUICE_TESTS_SUPPORT_CACHED_PICTURES_H_
