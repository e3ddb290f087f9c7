#include "apps/resnet50/sizing.h"

#include "apps/resnet50/pictures.h"
#include "engine/status.h"

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
  RandomCut usual;
  if (SourceOf(run) == Source::kCifar10) usual.pad = 4;
  auto parsed =
      Augmentation::Parse(run.flag("augment"), ColoursOf(small).mean, usual);
  ThrowIfError(parsed.status().WithContext("--augment"));
  return *std::move(parsed);
}

bool TenCrop(const RunContext& run) {
  if (run.flag("ten-crop") != "true") return false;
  if (run.mode == Mode::kEval) return true;
  throw Error(Code::kInvalidArgument, "--ten-crop is for eval");
}

std::string DescribeSizing(const RunContext& run) {
  return run.flag("exif") == "true" ? "upright " : "";
}

Result<Tensor> Sizing::operator()(std::string_view bytes,
                                  const std::string& name, uint64_t key) const {
  if (ten_crop_) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor image, Decode(bytes, name));
    return Size(image, key);
  }
  if (!training_) {
    return DecodeResizeAndCrop(bytes, name, resize(), side(), decoding_);
  }
  const RandomCut& cut = augmentation_.cut();
  if (cut.pad) {
    SLUICE_ASSIGN_OR_RETURN(
        const Tensor middle,
        DecodeResizeAndCrop(bytes, name, resize(), side(), decoding_));
    return PadAndCrop(middle, key);
  }
  SLUICE_ASSIGN_OR_RETURN(
      const Tensor part,
      DecodeRandomResizedCrop(bytes, name, side(), key, decoding_, cut.crop));
  return augmentation_.Apply(part, key);
}

Result<Tensor> Sizing::Decode(std::string_view bytes,
                              const std::string& name) const {
  return DecodeImage(bytes, name, decoding_);
}

Tensor Sizing::Size(const Tensor& image, uint64_t key) const {
  if (ten_crop_) return ResizeAndTenCrop(image, resize(), side());
  if (!training_) return ResizeAndCrop(image, resize(), side());
  const RandomCut& cut = augmentation_.cut();
  if (cut.pad) {
    return PadAndCrop(ResizeAndCrop(image, resize(), side()), key);
  }
  return augmentation_.Apply(RandomResizedCrop(image, side(), key, cut.crop),
                             key);
}

Tensor Sizing::PadAndCrop(const Tensor& image, uint64_t key) const {
  const RandomCut& cut = augmentation_.cut();
  return augmentation_.Apply(RandomPadCrop(image, *cut.pad, key, cut.crop.flip),
                             key);
}

}  // namespace sluice::resnet50
