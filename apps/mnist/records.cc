#include "apps/mnist/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "apps/shards/picture_shards.h"
#include "io/files/file.h"
#include "io/files/file_pattern.h"
#include "io/files/schemes.h"
#include "io/images/image.h"
#include "io/records/image_records.h"

namespace sluice::mnist {
namespace {

constexpr int64_t kPictureSide = 28;

bool IsDigit(const std::string& name) {
  return name.size() == 1 && name[0] >= '0' && name[0] <= '9';
}

// MNIST's own files are read by their names, whether their folder can be listed
// or not, as on a web server. Throws where nothing tells that there are any, as
// in a bucket that there is not.
void RequireNoRefusal(const std::string& path, const Status& refusal) {
  const Code code = refusal.code();
  const bool local = SchemeOf(path).empty();
  if (code == Code::kUnimplemented) return;
  if (code == Code::kNotFound && local) return;  // who reads it will say so
  for (const char* name :
       {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte",
        "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"}) {
    const auto size = FileSystem::Default().Size(JoinPath(path, name));
    if (size.ok()) return;
  }
  throw Error(refusal);
}

// Other names than those of digits say nothing of what a label is.
shards::TrainedClasses ClassesOf(const std::string& path) {
  const auto names = shards::ClassNamesBeside(path);
  shards::TrainedClasses classes = {.count = kClasses};
  if (!std::all_of(names.begin(), names.end(), IsDigit)) return classes;
  for (int64_t i = 0; i < kClasses; ++i) {
    classes.names.push_back(std::to_string(i));
  }
  return classes;
}

}  // namespace

bool HasShards(const std::string& path) {
  if (IsFilePattern(path)) return shards::HasPictureShards(path);
  const auto folder = ListFolder(path);
  if (!folder.ok()) {
    RequireNoRefusal(path, folder.status());
    return false;
  }
  if (!HasImageShards(*folder, ShardKind::kRecords) &&
      !HasImageShards(*folder, ShardKind::kTars)) {
    return false;
  }
  for (const std::string& name : folder->names) {
    if (name.find("-ubyte") == std::string::npos) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' holds shards and '{}': keep one of them "
                            "there",
                            path, name));
  }
  return true;
}

Result<Tensor> DecodeDigit(std::string_view bytes, const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor picture, DecodeImage(bytes, name));
  if (picture.shape() != Shape{kPictureSide, kPictureSide, 3}) {
    return InvalidArgument(
        fmt::format("'{}' has {} x {} pixels, wanted {} x "
                    "{}",
                    name, picture.shape()[1], picture.shape()[0], kPictureSide,
                    kPictureSide));
  }
  Tensor digit(DType::kUInt8, {kPictureSide, kPictureSide, 1});
  const uint8_t* pixel = picture.data<uint8_t>();
  for (uint8_t& grey : digit.values<uint8_t>()) {
    if (pixel[0] != pixel[1] || pixel[0] != pixel[2]) {
      return InvalidArgument(
          fmt::format("'{}' has colours, wanted grey", name));
    }
    grey = *pixel;
    pixel += 3;
  }
  return digit;
}

RecordDigits::RecordDigits(const RunContext& run)
    : shards_(run, run.data_dir, ClassesOf(run.data_dir), kCompressed) {}

Dataset RecordDigits::Numbers() const {
  return datasets::RecordNumbers(shards_.size(), shards_.Identity());
}

void RecordDigits::Read(Example& example) const {
  const int64_t number = example["record"].IntAt(0);
  const shards::ShardPicture picture = shards_.Read(number);
  const Result<Tensor> digit = DecodeDigit(picture.encoded, picture.name);
  ThrowIfError(digit.status().WithContext(shards_.PlaceOf(number)));
  example = {{"image", *digit}, {"label", Tensor::Scalar(picture.label)}};
}

}  // namespace sluice::mnist
