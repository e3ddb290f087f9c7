// The fine-tuning flags, all at once, on photographs from records.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/newest_tensors.h"
#include "tests/support/real_data.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_JPEG && SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::NewestTensors;
using testing::Outcome;
using testing::RunResNet50;
using testing::TextOf;
using Strings = std::vector<std::string>;

// Classes of 8, 4 and 2 photographs, and a half of another one.
void WritePhotographs(const std::string& samples, const std::string& folder) {
  Strings photographs;
  for (const auto& entry : fs::directory_iterator(samples)) {
    if (entry.path().extension() == ".JPEG") {
      photographs.push_back(entry.path());
    }
  }
  std::sort(photographs.begin(), photographs.end());
  REQUIRE(photographs.size() > 14);
  size_t next = 0;
  for (const auto& [name, count] :
       {std::pair("many", 8), {"more", 4}, {"rare", 2}}) {
    fs::create_directories(fmt::format("{}/{}", folder, name));
    for (int i = 0; i < count; ++i) {
      fs::copy(photographs[next++],
               fmt::format("{}/{}/{}.jpg", folder, name, i));
    }
  }
  const std::string whole = TextOf(photographs[next]);
  std::ofstream(folder + "/many/half.jpg", std::ios::binary)
      << whole.substr(0, whole.size() / 2);
}

Outcome Train(const std::string& data, const std::string& log,
              const Strings& more) {
  Strings arguments = {"train",    "--data",         data, "--model",
                       "resnet18", "--seed",         "4",  "--batch-size",
                       "4",        "--log-dir",      log,  "--skip-bad",
                       "1",        "--deterministic"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Outcome outcome = RunResNet50(arguments);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return outcome;
}

TEST_CASE("a network is tuned to photographs in records") {
  const auto samples = testing::RealData("imagenet-samples");
  if (!samples) return;
  const testing::TemporaryFolder folder;
  WritePhotographs(*samples, folder / "photographs");
  const std::string records = folder / "records";
  const Outcome made = testing::RunProgram(
      SLUICE_BIN_DIR "/sluice",
      {"data", "make", folder / "photographs", records, "--shards", "2"});
  REQUIRE_MESSAGE(made.code == 0, made.err);

  const std::string first = folder / "first", tuned = folder / "tuned";
  (void)Train(records, first, {"--classes", "9", "--steps", "2"});
  const Outcome outcome = Train(
      records, tuned,
      {"--weights", first + "/checkpoint-2.safetensors", "--reset", "fc/*",
       "--freeze", "conv1/*,bn1/*,layer1/*", "--learning-rate-for",
       "layer*=0.1,layer2/*=0", "--class-weights", "balanced", "--steps", "4"});
  CAPTURE(outcome.err);
  CHECK(Contains(outcome.err, "but for fc/weights, fc/bias"));
  CHECK(Contains(outcome.err, "reading 15 labels"));
  CHECK(Contains(outcome.err, "half.jpg"));

  const auto before = NewestTensors(first), after = NewestTensors(tuned);
  CHECK(before.at("fc/weights").shape().dims().back() == 9);
  CHECK(after.at("fc/weights").shape().dims().back() == 3);
  int same = 0, changed = 0;
  for (const auto& [name, tensor] : before) {
    const bool slot = !after.contains(name) || name.ends_with("/velocity");
    if (slot || tensor.dtype() != DType::kFloat32) continue;
    CAPTURE(name);
    const bool frozen = name.starts_with("conv1/") ||
                        name.starts_with("bn1/") || name.starts_with("layer1");
    // Running statistics have no rate.
    const bool still = name.starts_with("layer2") && name.ends_with("/weights");
    if (frozen || still) {
      CHECK(after.at(name).BitEqual(tensor));
      ++same;
    } else if (name.starts_with("layer4") && name.ends_with("/weights")) {
      CHECK(!after.at(name).BitEqual(tensor));
      ++changed;
    }
  }
  CHECK(same > 20);
  CHECK(changed >= 5);
}

}  // namespace
}  // namespace sluice
#endif
