#include "apps/resnet50/sizing.h"

#include "io/images/image.h"

namespace sluice::resnet50 {

const Colours& ColoursOf(bool small) {
  static constexpr Colours kImageNet = {.mean = {0.485, 0.456, 0.406},
                                        .deviation = {0.229, 0.224, 0.225}};
  static constexpr Colours kCifar = {.mean = {0.4914, 0.4822, 0.4465},
                                     .deviation = {0.2470, 0.2435, 0.2616}};
  return small ? kCifar : kImageNet;
}

Augmentation AugmentationOf(bool small, const RunContext& run) {
  if (!run.training()) return {};
  auto parsed = Augmentation::Parse(run.flag("augment"), ColoursOf(small).mean);
  ThrowIfError(parsed.status().WithContext("--augment"));
  return *std::move(parsed);
}

Result<Tensor> Sizing::operator()(std::string_view bytes,
                                  const std::string& name, uint64_t key) const {
  const int64_t side = small_ ? kCifarSide : kCrop;
  const int64_t resize = small_ ? kCifarSide : kResize;
  if (!training_) return DecodeResizeAndCrop(bytes, name, resize, side);
  SLUICE_ASSIGN_OR_RETURN(const Tensor part,
                          DecodeRandomResizedCrop(bytes, name, side, key));
  return augmentation_.Apply(part, key);
}

}  // namespace sluice::resnet50
