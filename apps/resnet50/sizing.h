// Turns pictures into what the network takes.
#ifndef SLUICE_APPS_RESNET50_SIZING_H_
#define SLUICE_APPS_RESNET50_SIZING_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/tensor.h"
#include "io/images/augment.h"
#include "io/images/image.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

inline constexpr int64_t kResize = 256, kCrop = 224, kCifarSide = 32;

// The colours of a data set's training pictures: red, green and blue, 0 to 1.
struct Colours {
  std::array<double, 3> mean, deviation;
};
// ImageNet's, or CIFAR-10's.
const Colours& ColoursOf(bool small);

// The augmentation of --augment, in training; without it, a random part of
// pictures of files, and CIFAR-10's padded by 4 pixels and cut, flipped half of
// the time. Throws Error, which is a wrong command line.
Augmentation AugmentationOf(bool small, const RunContext& run);

// Whether an evaluation is of ten crops of each picture (--ten-crop), of which
// the probabilities are averaged. Throws Error, which is a wrong command line,
// where it is none.
bool TenCrop(const RunContext& run);

// What tells inputs apart beside their files: flags that change what pictures
// of files are.
std::string DescribeSizing(const RunContext& run);

// Sizes pictures: for training a random part, augmented, else the middle, or
// ten crops. Thread-safe.
class Sizing {
 public:
  Sizing(bool small, const RunContext& run)
      : small_(small),
        training_(run.training()),
        ten_crop_(TenCrop(run)),
        decoding_{.exif = run.flag("exif") == "true"},
        augmentation_(AugmentationOf(small, run)) {}

  // A file's bytes as uint8 [side,side,3], or [10,side,side,3] of ten crops, as
  // ResizeAndTenCrop; `name` is for messages, `key` random
  // (Dataset::MapRandom). Errors of DecodeImage.
  Result<Tensor> operator()(std::string_view bytes, const std::string& name,
                            uint64_t key) const;
  // Sizing in two steps: Size(*Decode(bytes, name), key). Without an error the
  // result has the same bits; Decode finds damage outside the part, too.
  Result<Tensor> Decode(std::string_view bytes, const std::string& name) const;
  Tensor Size(const Tensor& image, uint64_t key) const;

 private:
  int64_t side() const { return small_ ? kCifarSide : kCrop; }
  int64_t resize() const { return small_ ? kCifarSide : kResize; }

  // For pictures that are as large as `resize` and `side` say.
  Tensor PadAndCrop(const Tensor& image, uint64_t key) const;

  bool small_, training_, ten_crop_;
  DecodeOptions decoding_;
  Augmentation augmentation_;
};

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_SIZING_H_
