#include "io/sources/cifar.h"

#include <fmt/format.h>

#include "engine/allocate.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

constexpr int64_t kPlane = kCifarSide * kCifarSide;
constexpr int64_t kChannels = 3;
constexpr int64_t kRecord = 1 + kChannels * kPlane;

Status CheckRecords(const std::string& bytes, const std::string& path) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0 || size % kRecord != 0) {
    return DataLoss(
        fmt::format("'{}': {} bytes are no whole number of CIFAR-10 records "
                    "of {} bytes",
                    WithoutQuery(path), size, kRecord));
  }
  for (int64_t i = 0; i < size / kRecord; ++i) {
    const int label = static_cast<uint8_t>(bytes[i * kRecord]);
    if (label >= kCifarClasses) {
      return OutOfRange(fmt::format("'{}': label {} of image {} is not in 0..9",
                                    WithoutQuery(path), label, i));
    }
  }
  return {};
}

// From one plane a channel to one pixel after another.
void Interleave(const char* planes, uint8_t* pixels) {
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    for (int64_t i = 0; i < kPlane; ++i) {
      pixels[i * kChannels + channel] =
          static_cast<uint8_t>(planes[channel * kPlane + i]);
    }
  }
}

}  // namespace

Result<Example> ReadCifar10(const std::vector<std::string>& paths,
                            FileSystem& files) {
  std::vector<std::string> parts;
  int64_t count = 0;
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(std::string bytes, files.Read(path));
    SLUICE_RETURN_IF_ERROR(CheckRecords(bytes, path));
    count += static_cast<int64_t>(bytes.size()) / kRecord;
    parts.push_back(std::move(bytes));
  }
  SLUICE_ASSIGN_OR_RETURN(
      Tensor images, AllocateTensor(DType::kUInt8, {count, kCifarSide,
                                                    kCifarSide, kChannels}));
  SLUICE_ASSIGN_OR_RETURN(Tensor labels,
                          AllocateTensor(DType::kInt64, {count}));
  int64_t n = 0;
  for (const std::string& part : parts) {
    for (size_t at = 0; at < part.size(); at += kRecord, ++n) {
      labels.data<int64_t>()[n] = static_cast<uint8_t>(part[at]);
      Interleave(part.data() + at + 1,
                 images.data<uint8_t>() + n * kChannels * kPlane);
    }
  }
  return Example{{"image", std::move(images)}, {"label", std::move(labels)}};
}

}  // namespace sluice
