// The resnet50 program from outside.
#ifndef SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "io/images/png.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace sluice::testing {

inline Outcome RunResNet50(const std::vector<std::string>& arguments) {
  return RunProgram(SLUICE_BIN_DIR "/resnet50", arguments);
}

inline void CheckResNet50Error(const Outcome& outcome, int code,
                               const std::string& part) {
  CheckError(outcome, "resnet50", code, part);
}

#if SLUICE_HAVE_PNG
// A PNG picture.
inline void WritePicture(const std::string& path, int64_t height,
                         int64_t width) {
  Tensor image(DType::kUInt8, {height, width, 3});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>(i * 13 % 251);
  }
  std::ofstream(path, std::ios::binary) << EncodePng(image).ValueOrThrow();
}

// Pictures of one colour per class, under a folder for each of `classes`: class
// names tell their colours.
inline void WriteClasses(const std::string& folder,
                         const std::vector<std::string>& classes, int count) {
  for (const std::string& name : classes) {
    std::filesystem::create_directories(fmt::format("{}/{}", folder, name));
    uint32_t colour = 0;
    for (const char c : name) colour = colour * 31 + static_cast<uint8_t>(c);
    for (int i = 0; i < count; ++i) {
      Tensor image(DType::kUInt8, {32, 32, 3});
      for (int64_t k = 0; k < image.elements(); ++k) {
        image.data<uint8_t>()[k] =
            static_cast<uint8_t>((colour >> (8 * (k % 3))) + (k * 7 + i) % 16);
      }
      std::ofstream(fmt::format("{}/{}/{}.png", folder, name, i),
                    std::ios::binary)
          << EncodePng(image).ValueOrThrow();
    }
  }
}
#endif

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_
