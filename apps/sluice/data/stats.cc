#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "apps/sluice/data/data.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/data/records.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/ceil_div.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/records/image_records.h"

namespace sluice::tool {
namespace {

struct Range {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0, sum = 0;

  void Add(int64_t value) { Add({value, value, value}); }
  void Add(const Range& other) {
    least = std::min(least, other.least);
    most = std::max(most, other.most);
    sum += other.sum;
  }
};

// What pictures are like. Whole numbers alone, so that parts add up to the same
// in any order.
struct Pictures {
  int64_t count = 0;
  Range height, width, bytes;
  std::map<int64_t, int64_t> by_label;
  // How often a channel has each value.
  std::array<std::array<int64_t, 256>, 3> histogram{};

  void Add(const EncodedPicture& picture, const Tensor& image) {
    ++count;
    height.Add(image.shape()[0]);
    width.Add(image.shape()[1]);
    bytes.Add(static_cast<int64_t>(picture.encoded.size()));
    ++by_label[picture.label];
    const uint8_t* pixel = image.data<uint8_t>();
    const uint8_t* const end = pixel + image.elements();
    for (; pixel < end; pixel += 3) {
      for (size_t c = 0; c < 3; ++c) ++histogram[c][pixel[c]];
    }
  }
  void Add(const Pictures& other) {
    count += other.count;
    height.Add(other.height);
    width.Add(other.width);
    bytes.Add(other.bytes);
    for (const auto& [label, n] : other.by_label) by_label[label] += n;
    for (size_t c = 0; c < 3; ++c) {
      for (size_t v = 0; v < 256; ++v) {
        histogram[c][v] += other.histogram[c][v];
      }
    }
  }
};

// Of pixels from 0 to 1.
struct Channel {
  double mean = 0, deviation = 0;  // of the population
};

Channel ChannelOf(const std::array<int64_t, 256>& histogram) {
  double pixels = 0, sum = 0, squares = 0;
  for (size_t v = 0; v < 256; ++v) {
    const auto n = static_cast<double>(histogram[v]);
    pixels += n;
    sum += n * static_cast<double>(v) / 255;
  }
  const double mean = sum / pixels;
  for (size_t v = 0; v < 256; ++v) {
    const double from_mean = static_cast<double>(v) / 255 - mean;
    squares += static_cast<double>(histogram[v]) * from_mean * from_mean;
  }
  return {mean, std::sqrt(squares / pixels)};
}

Pictures LookAt(const PictureFiles& files, int threads) {
  constexpr int64_t kBlock = 16;  // records, so that a histogram pays
  Mutex mutex;
  Pictures all;
  Progress progress(files.size(), "pictures");
  const auto look = [&](int64_t block) -> Status {
    Pictures some;
    const int64_t end = std::min((block + 1) * kBlock, files.size());
    for (int64_t i = block * kBlock; i < end; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const EncodedPicture picture, files.Read(i));
      SLUICE_ASSIGN_OR_RETURN(const Tensor image, files.Decode(i, picture));
      some.Add(picture, image);
      progress.Add(1);
    }
    MutexLock lock(mutex);
    all.Add(some);
    return {};
  };
  ThrowIfError(ForEach(CeilDiv(files.size(), kBlock), threads, look));
  return all;
}

struct Class {
  int64_t label;
  std::string name;  // empty: it has none
  int64_t pictures;
};

// By label; those of labels.txt of which there are none too.
std::vector<Class> ClassesOf(const Pictures& pictures,
                             const std::vector<std::string>& names) {
  std::map<int64_t, int64_t> counts = pictures.by_label;
  const auto n = static_cast<int64_t>(names.size());
  const int64_t offset =
      LabelOffset(counts.begin()->first, counts.rbegin()->first, n);
  for (int64_t i = 0; i < n; ++i) counts.emplace(i + offset, 0);
  std::vector<Class> classes;
  for (const auto& [label, count] : counts) {
    const int64_t i = label - offset;
    classes.push_back({label, i >= 0 && i < n ? names[i] : "", count});
  }
  return classes;
}

// "test" of "DIR/some-test.tfrecord-00000-of-00001", as FindShards finds it,
// and of "DIR/some-test-000000.tar".
std::string PartOf(std::string shard) {
  constexpr std::string_view kTar = ".tar", kRecords = ".tfrecord";
  if (shard.ends_with(kTar)) shard.resize(shard.size() - kTar.size());
  const size_t count = shard.rfind("-of-");
  if (count != std::string::npos && count > shard.rfind('/')) {
    shard.resize(count);
  }
  shard.resize(shard.rfind('-'));
  if (shard.ends_with(kRecords)) shard.resize(shard.size() - kRecords.size());
  return shard.substr(shard.find_last_of("-/") + 1);
}

void PrintText(const Pictures& pictures, const std::string& part,
               const std::vector<Class>& classes,
               const std::array<Channel, 3>& channels) {
  const auto by_count = [](const Class& a, const Class& b) {
    return a.pictures < b.pictures;
  };
  const auto line = [](const char* of, const Class& c) {
    fmt::print("{:<18} {:>9}  label {}{}\n", of, c.pictures, c.label,
               c.name.empty() ? "" : fmt::format(" '{}'", Printable(c.name)));
  };
  const auto range = [&](const char* of, const Range& r) {
    fmt::print(
        "{:<18} {:>9}  to {}, mean {:.1f}\n", of, r.least, r.most,
        static_cast<double>(r.sum) / static_cast<double>(pictures.count));
  };
  const auto numbers = [&](const char* of, double Channel::*value) {
    fmt::print("{:<18} {:>9.5f} {:>9.5f} {:>9.5f}\n", of, channels[0].*value,
               channels[1].*value, channels[2].*value);
  };
  fmt::print("{:<18} {:>9}  of '{}'\n", "pictures", pictures.count, part);
  fmt::print("{:<18} {:>9}\n", "classes", classes.size());
  line("  least pictures",
       *std::min_element(classes.begin(), classes.end(), by_count));
  line("  most pictures",
       *std::max_element(classes.begin(), classes.end(), by_count));
  range("height", pictures.height);
  range("width", pictures.width);
  range("bytes", pictures.bytes);
  numbers("mean (RGB, 0..1)", &Channel::mean);
  numbers("deviation", &Channel::deviation);
}

void PrintAsJson(const Pictures& pictures, const std::string& part,
                 const std::vector<Class>& classes,
                 const std::array<Channel, 3>& channels) {
  for (const Class& c : classes) {
    Json line = {{"label", c.label}, {"pictures", c.pictures}};
    if (!c.name.empty()) line["name"] = c.name;
    PrintJson(line);
  }
  const auto range = [&](const Range& r) {
    return Json{{"least", r.least},
                {"most", r.most},
                {"mean", static_cast<double>(r.sum) /
                             static_cast<double>(pictures.count)}};
  };
  Json mean, deviation;
  for (const Channel& channel : channels) {
    mean.Add(channel.mean);
    deviation.Add(channel.deviation);
  }
  PrintJson({{"part", part},
             {"pictures", pictures.count},
             {"classes", classes.size()},
             {"height", range(pictures.height)},
             {"width", range(pictures.width)},
             {"bytes", range(pictures.bytes)},
             {"mean", mean},
             {"deviation", deviation}});
}

}  // namespace

void PrintDataStatistics(const std::string& folder, const std::string& part,
                         int threads, bool json) {
  const std::vector<std::string> shards = PartPaths(folder, part);
  const auto files = PictureFiles::Open(shards, threads).ValueOrThrow();
  const std::vector<std::string> names = ReadClassNames(folder).ValueOrThrow();
  const Pictures pictures = LookAt(*files, threads);
  if (pictures.count == 0) {
    throw Error(
        Code::kNotFound,
        fmt::format("there are no records of '{}' in '{}'", part, folder));
  }
  std::array<Channel, 3> channels;
  std::transform(pictures.histogram.begin(), pictures.histogram.end(),
                 channels.begin(), ChannelOf);
  const std::vector<Class> classes = ClassesOf(pictures, names);
  // Where there is no "validation", another is read.
  const std::string found = PartOf(shards.front());
  json ? PrintAsJson(pictures, found, classes, channels)
       : PrintText(pictures, found, classes, channels);
}

}  // namespace sluice::tool
