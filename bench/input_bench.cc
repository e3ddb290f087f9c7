// Times what becomes of a training image before a network sees it, by one
// thread, over the photographs of a folder, which lie in memory:
//
// crop    decoded, a random part resized to side x side, flipped half of the
//         time (DecodeRandomResizedCrop)
// decode  that part alone, decoded
// resize  that part alone, resized and flipped
// whole   the whole image decoded, then RandomResizedCrop
//
// and of tf.Examples, which take no photographs; of 20 integers and 20 floats:
//
// parse    in batches of 128 (ParseTfExamples)
// stack    one by one (ParseTfExample), then made a batch of 128 (Stack)
// scalars  one by one
//
// and of 100,000 bytes, as of a picture, and a label:
//
// pictures in batches of 32
// picture  one by one
//
// and of what becomes of photographs:
//
// batch    32 of 224 x 224 pixels made a batch (Stack)
//
// which is by processor time, as the peer's is (bench/peers/example_parse.py).
//
// A round takes each photograph once; every round has parts of its own, the
// same in every run. With --rectangles it prints these instead, for
// bench/peers/image_decode.py.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/guarded.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "io/example.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/resample.h"
#include "io/records/tf_example.h"

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
        FileSystem::Default().Read(entry.path().string()).ValueOrThrow();
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

// Of tf.Examples, each kind `batch` times.
class ExampleBench {
 public:
  ExampleBench() : scalars_(Scalars()), pictures_(Pictures()) {
    for (size_t i = 0; i < pictures_.bytes.size(); ++i) {
      decoded_.push_back(
          {{"image", Tensor::Full(DType::kUInt8, {224, 224, 3}, 7)}});
    }
  }

  // What it may measure.
  static const std::vector<std::string>& Names() {
    static const std::vector<std::string> names = {
        "parse", "stack", "scalars", "pictures", "picture", "batch"};
    return names;
  }

  // Examples per second of one round, by processor time.
  double Rate(const std::string& what) const {
    const bool large = what.starts_with("picture") || what == "batch";
    const Examples& examples = large ? pictures_ : scalars_;
    const int batches = large ? 20 : 200;
    const std::clock_t begin = std::clock();
    for (int i = 0; i < batches; ++i) {
      if (what == "batch") {
        Stack(decoded_).ValueOrThrow();
      } else if (what == "parse" || what == "pictures") {
        ParseTfExamples(examples.views, examples.specs).ValueOrThrow();
      } else {
        ParseEach(examples, what == "stack");
      }
    }
    return static_cast<double>(batches * examples.bytes.size()) /
           (static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }

 private:
  using Features = std::vector<std::pair<std::string, TfFeature>>;
  struct Examples {
    std::vector<FeatureSpec> specs;
    std::vector<std::string> bytes;
    std::vector<std::string_view> views;  // of them
  };

  static Examples Make(std::vector<FeatureSpec> specs, int batch,
                       const std::function<Features()>& features) {
    Examples out = {.specs = std::move(specs), .bytes = {}, .views = {}};
    for (int i = 0; i < batch; ++i) {
      out.bytes.push_back(EncodeTfExample(features()).ValueOrThrow());
    }
    out.views.assign(out.bytes.begin(), out.bytes.end());
    return out;
  }
  static Examples Scalars() {
    std::vector<FeatureSpec> specs;
    for (int i = 0; i < 20; ++i) {
      specs.push_back({fmt::format("integer_{:02}", i), DType::kInt64, {}});
      specs.push_back({fmt::format("float_{:02}", i), DType::kFloat32, {}});
    }
    std::mt19937 random(1);
    return Make(specs, 128, [&] {
      Features features;
      for (const FeatureSpec& spec : specs) {
        const auto value = static_cast<int64_t>(random() % 100'000);
        if (spec.dtype == DType::kInt64) {
          features.emplace_back(spec.name, std::vector<int64_t>{value});
        } else {
          features.emplace_back(
              spec.name, std::vector<float>{static_cast<float>(value) / 8});
        }
      }
      return features;
    });
  }
  static Examples Pictures() {
    const std::vector<FeatureSpec> specs = {
        {"image/encoded", DType::kUInt8, {kUnknown}},
        {"image/class/label", DType::kInt64, {}}};
    std::mt19937 random(1);
    return Make(specs, 32, [&]() -> Features {
      std::string encoded(100'000, '\0');
      for (char& byte : encoded) byte = static_cast<char>(random());
      return {{"image/encoded", std::vector<std::string>{encoded}},
              {"image/class/label", std::vector<int64_t>{7}}};
    });
  }

  static void ParseEach(const Examples& of, bool stack) {
    std::vector<Example> examples;
    for (const std::string_view bytes : of.views) {
      Example example = ParseTfExample(bytes, of.specs).ValueOrThrow();
      if (stack) examples.push_back(std::move(example));
    }
    if (stack) Stack(examples).ValueOrThrow();
  }

  const Examples scalars_, pictures_;
  std::vector<Example> decoded_;
};

bool IsOfExamples(const std::string& what) {
  const auto& names = ExampleBench::Names();
  return std::find(names.begin(), names.end(), what) != names.end();
}
std::string Unit(const std::string& what) {
  return IsOfExamples(what) ? "examples" : "images";
}

// Least, median and most of the rounds' rates, after a round that warms up.
Json Measure(const std::string& what, int rounds,
             const std::function<double(int)>& rate) {
  rate(0);
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    rates.push_back(rate(round));
  }
  std::sort(rates.begin(), rates.end());
  return {{"bench", what},
          {"rounds", rounds},
          {fmt::format("{}_per_second", Unit(what)), rates[rates.size() / 2]},
          {"least", rates.front()},
          {"most", rates.back()}};
}

int Main(int argc, char** argv) {
  std::string folder;
  int64_t side = 224;
  int rounds = 11;
  bool rectangles = false, json = false;
  std::vector<std::string> which = {"crop", "decode", "resize", "whole"};
  std::vector<std::string> all = which;
  all.insert(all.end(), ExampleBench::Names().begin(),
             ExampleBench::Names().end());
  CLI::App app(
      "Times decoding and resizing photographs, and parsing tf.Examples, on "
      "one "
      "thread");
  app.option_defaults()->always_capture_default();
  app.add_option("folder", folder, "Of JPEG files; tf.Examples need none")
      ->check(CLI::ExistingDirectory);
  app.add_option("--side", side)->check(CLI::Range(1, 10'000));
  app.add_option("--rounds", rounds, "Over all photographs")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--which", which)->check(CLI::IsMember(all));
  app.add_flag("--rectangles", rectangles, "Print the parts and end");
  app.add_flag("--json", json, "One object a row");
  CLI11_PARSE(app, argc, argv);
  std::optional<Bench> images;
  std::optional<ExampleBench> examples;
  if (!folder.empty()) images.emplace(folder, side);
  if (!images &&
      (rectangles || !std::all_of(which.begin(), which.end(), IsOfExamples))) {
    throw Error(InvalidArgument("which folder's photographs? none is given"));
  }
  if (rectangles) {
    images->PrintRectangles(rounds);
    return 0;
  }
  if (std::any_of(which.begin(), which.end(), IsOfExamples)) examples.emplace();
  for (const std::string& what : which) {
    const Json row = Measure(what, rounds, [&](int round) {
      return IsOfExamples(what) ? examples->Rate(what)
                                : images->Rate(what, round);
    });
    const std::string unit = Unit(what);
    std::cout << (json
                      ? row.dump()
                      : fmt::format("{:9}{:9.1f} {}/s ({:.1f} to {:.1f})", what,
                                    row[unit + "_per_second"].get<double>(),
                                    unit, row["least"].get<double>(),
                                    row["most"].get<double>()))
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("input_bench", sluice::Main, argc, argv);
}
