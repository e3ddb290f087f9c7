// Times what becomes of a training image before a network sees it, by one
// thread, over the photographs of a folder, which lie in memory:
//
// crop    decoded, a random part resized to side x side, flipped half of the
//         time (DecodeRandomResizedCrop)
// decode  that part alone, decoded
// resize  that part alone, resized and flipped
// whole   the whole image decoded, then RandomResizedCrop
//
// A round takes each photograph once; every round has parts of its own, the
// same in every run. With --rectangles it prints these instead, for
// bench/peers/image_decode.py.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/resample.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Photograph {
  std::string name, bytes;
  JpegSize size;
};

std::vector<Photograph> ReadPhotographs(const std::string& folder) {
  std::vector<Photograph> photographs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!IsImageName(name)) continue;
    std::string bytes =
        FileSystem::Posix().Read(entry.path().string()).ValueOrThrow();
    if (!IsJpeg(bytes)) continue;
    const JpegSize size = ReadJpegSize(bytes).ValueOrThrow();
    photographs.push_back({name, std::move(bytes), size});
  }
  if (photographs.empty()) {
    throw Error(NotFound(fmt::format("'{}' has no JPEG files", folder)));
  }
  std::sort(photographs.begin(), photographs.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return photographs;
}

class Bench {
 public:
  Bench(const std::string& folder, int64_t side)
      : photographs_(ReadPhotographs(folder)), side_(side) {}

  void PrintRectangles(int rounds) const {
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < photographs_.size(); ++i) {
        const RandomPart random = Draw(i, round);
        const Json line = {{"round", round},
                           {"file", photographs_[i].name},
                           {"top", random.part.top},
                           {"left", random.part.left},
                           {"height", random.part.height},
                           {"width", random.part.width},
                           {"flip", random.flip}};
        std::cout << line.dump() << '\n';
      }
    }
  }

  // Images per second of one round.
  double Rate(const std::string& what, int round) const {
    double seconds = 0;
    for (size_t i = 0; i < photographs_.size(); ++i) {
      seconds += Seconds(what, i, round);
    }
    return static_cast<double>(photographs_.size()) / seconds;
  }

 private:
  uint64_t Key(size_t i, int round) const {
    return static_cast<uint64_t>(round) * photographs_.size() + i;
  }
  RandomPart Draw(size_t i, int round) const {
    const JpegSize& size = photographs_[i].size;
    return DrawRandomPart(size.height, size.width, Key(i, round));
  }
  Tensor DecodePart(const std::string& bytes, const ImagePart& part) const {
    Tensor image(DType::kUInt8, {part.height, part.width, 3});
    uint8_t* to = image.data<uint8_t>();
    ThrowIfError(DecodeJpegRows(bytes, part, [&](const uint8_t* row) {
      to = std::copy_n(row, part.width * 3, to);
    }));
    return image;
  }
  double Seconds(const std::string& what, size_t i, int round) const {
    const std::string &bytes = photographs_[i].bytes,
                      &name = photographs_[i].name;
    const RandomPart random = Draw(i, round);
    const auto [top, left, height, width] = random.part;
    const Resampling resampling = {
        {0, 0, height, width}, side_, side_, {0, 0, side_, side_}, random.flip};
    Tensor part;
    if (what == "resize") part = DecodePart(bytes, random.part);
    const auto begin = Clock::now();
    if (what == "crop") {
      part = DecodeRandomResizedCrop(bytes, name, side_, Key(i, round))
                 .ValueOrThrow();
    } else if (what == "decode") {
      part = DecodePart(bytes, random.part);
    } else if (what == "resize") {
      part = Resample(part, resampling);
    } else {
      part = RandomResizedCrop(DecodeImage(bytes, name).ValueOrThrow(), side_,
                               Key(i, round));
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const std::vector<Photograph> photographs_;
  const int64_t side_;
};

// Least, median and most of the rounds' rates.
Json Measure(const Bench& bench, const std::string& what, int rounds) {
  bench.Rate(what, 0);
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    rates.push_back(bench.Rate(what, round));
  }
  std::sort(rates.begin(), rates.end());
  return {{"bench", what},
          {"rounds", rounds},
          {"images_per_second", rates[rates.size() / 2]},
          {"least", rates.front()},
          {"most", rates.back()}};
}

int Main(int argc, char** argv) {
  std::string folder;
  int64_t side = 224;
  int rounds = 11;
  bool rectangles = false, json = false;
  std::vector<std::string> which = {"crop", "decode", "resize", "whole"};
  CLI::App app("Times decoding and resizing photographs, on one thread");
  app.option_defaults()->always_capture_default();
  app.add_option("folder", folder, "Of JPEG files")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--side", side)->check(CLI::Range(1, 10'000));
  app.add_option("--rounds", rounds, "Over all photographs")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--which", which)->check(CLI::IsMember(which));
  app.add_flag("--rectangles", rectangles, "Print the parts and end");
  app.add_flag("--json", json, "One object a row");
  CLI11_PARSE(app, argc, argv);
  const Bench bench(folder, side);
  if (rectangles) {
    bench.PrintRectangles(rounds);
    return 0;
  }
  for (const std::string& what : which) {
    const Json row = Measure(bench, what, rounds);
    std::cout << (json ? row.dump()
                       : fmt::format("{:8}{:9.1f} images/s ({:.1f} to {:.1f})",
                                     what,
                                     row["images_per_second"].get<double>(),
                                     row["least"].get<double>(),
                                     row["most"].get<double>()))
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::Main(argc, argv);
  } catch (const sluice::Error& error) {
    std::cerr << "input_bench: " << error.what() << std::endl;
    return 1;
  }
}
