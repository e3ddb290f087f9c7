// How pictures become what the network takes.
#ifndef SLUICE_APPS_RESNET50_SIZING_H_
#define SLUICE_APPS_RESNET50_SIZING_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/tensor.h"
#include "io/images/augment.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

inline constexpr int64_t kResize = 256, kCrop = 224, kCifarSide = 32;

// Of a data set's training pictures, red, green and blue, 0 to 1.
struct Colours {
  std::array<double, 3> mean, deviation;
};
// ImageNet's, or CIFAR-10's.
const Colours& ColoursOf(bool small);

// What --augment says, in training. Throws Error, which is a wrong command
// line.
Augmentation AugmentationOf(bool small, const RunContext& run);

// For training a random part, augmented, else the middle. Thread-safe.
class Sizing {
 public:
  Sizing(bool small, const RunContext& run)
      : small_(small),
        training_(run.training()),
        augmentation_(AugmentationOf(small, run)) {}

  // A file's bytes as uint8 [side,side,3]; `name` is for messages, `key` random
  // (Dataset::MapRandom). Errors of DecodeImage.
  Result<Tensor> operator()(std::string_view bytes, const std::string& name,
                            uint64_t key) const;

 private:
  bool small_, training_;
  Augmentation augmentation_;
};

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_SIZING_H_
