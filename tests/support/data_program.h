// `sluice data` from outside, and pictures for it.
#ifndef SLUICE_TESTS_SUPPORT_DATA_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_DATA_PROGRAM_H_

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "io/checkpoints/safetensors.h"
#include "io/images/png.h"
#include "tests/places.h"
#include "tests/support/last_object.h"
#include "tests/support/program.h"

namespace sluice::testing {

inline constexpr const char* kTool = SLUICE_BIN_DIR "/sluice";

inline Outcome RunData(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "data");
  return RunProgram(kTool, arguments);
}
// It succeeds; the last object it prints.
inline nlohmann::ordered_json DataObject(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = RunData(arguments);
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return LastObject(outcome.out);
}
inline void CheckDataError(const std::vector<std::string>& arguments, int code,
                           const std::string& part) {
  CheckError(RunData(arguments), "sluice", code, part);
}

// Makes the folder as well.
inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

#if SLUICE_HAVE_PNG
// Noise of random size.
inline std::string RandomPng(std::mt19937& random) {
  const auto height = static_cast<int64_t>(1 + random() % 20);
  const auto width = static_cast<int64_t>(1 + random() % 20);
  Tensor image(DType::kUInt8, {height, width, 3});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>(random());
  }
  return EncodePng(image).ValueOrThrow();
}
#endif

// One of two.
inline std::string RandomJpeg(std::mt19937& random) {
  static const Safetensors kGolden =
      ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/images.safetensors")
          .ValueOrThrow();
  const std::string name =
      random() % 2 == 0 ? "jpeg/file" : "jpeg_progressive/file";
  for (const NamedTensor& t : kGolden.tensors) {
    if (t.name != name) continue;
    return {reinterpret_cast<const char*>(t.tensor.data<uint8_t>()),
            t.tensor.bytes()};
  }
  FAIL("no " << name);
  return {};
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_DATA_PROGRAM_H_
