// Random changes of training pictures, by name.
#ifndef SLUICE_IO_IMAGES_AUGMENT_H_
#define SLUICE_IO_IMAGES_AUGMENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/images/image.h"
#include "io/images/mix.h"

namespace SLUICE_PUBLIC sluice {

// How a picture is cut before anything else is done to it.
struct RandomCut {
  // If set, by RandomPadCrop with so many zeros; else by RandomResizedCrop.
  std::optional<int64_t> pad;
  RandomCrop crop;  // its `flip` is for either
};

// What is done to each picture, in the order written, and to each batch of
// pictures, such as "randaugment(2,9),erasing(0.25),mixup(0.2)":
//   text     = [part {"," part}]          blanks between tokens do not matter
//   part     = name ["(" [number {"," number}] ")"]
// Arguments left out have the values below, which are torchvision's.
//   randaugment(num_ops=2, magnitude=9)
//     That many operations (1 to 14) one after another, each drawn from 14:
//     identity, shears, translations, rotation, brightness, colour, contrast,
//     sharpness, posterize, solarize, autocontrast and equalize. Magnitude 0 to
//     30 is how much; where there are two directions, one is drawn
//     ("RandAugment: Practical automated data augmentation with a reduced
//     search space", Cubuk et al., 2020; torchvision's RandAugment of a PIL
//     image, with nearest pixels and black around).
//   erasing(p=0.5)
//     With probability p a rectangle of 2 to 33 % of the area and a ratio of
//     height to width of 0.3 to 3.3 becomes the mean colour ("Random Erasing
//     Data Augmentation", Zhong et al., 2020; torchvision's RandomErasing with
//     value=0 behind Normalize).
//   jitter(brightness, contrast=0, saturation=0, hue=0)
//     Each times a factor from max(0, 1 - x) to 1 + x, at most 10; the hue
//     turned by -x to x, at most 0.5, of the circle; in random order
//     (torchvision's ColorJitter of a PIL image).
//   crop(scale_min=0.08, scale_max=1, ratio_min=3/4, ratio_max=4/3)
//     A random part of that much of the area, at most 1, and of that ratio of
//     width to height, 0.01 to 100 (torchvision's RandomResizedCrop).
//   pad-crop(pixels=4)
//     Padded by so many zeros, at most 31, and cut at a random place
//     (torchvision's RandomCrop with padding). Not beside crop.
//   flip(p=0.5)
//     From left to right, with probability p (RandomHorizontalFlip).
//     These three, each at most once, come before those above: each takes the
//     place of what is usual, and what is not named stays as usual.
//   mixup(alpha=1), cutmix(alpha=1)
//     Of each batch, wherever they are written: all pictures are mixed with
//     others (BatchMix); of several such parts each batch draws one.
class Augmentation {
 public:
  Augmentation() = default;  // changes nothing, as that of an empty text

  // `mean` is that of the colours, 0 to 1 by channel, as for Standardize.
  // `usual`: how pictures are cut unless the text says otherwise; without it,
  // nobody cuts them, and the text may not name what does. kInvalidArgument
  // naming the part that is wrong and what is possible.
  static Result<Augmentation> Parse(
      std::string_view text, const std::array<double, 3>& mean,
      const std::optional<RandomCut>& usual = std::nullopt);
  // The text with all arguments and without blanks; Parse makes the same of it.
  std::string ToString() const;

  // How a picture is cut first, which is left to the caller: that can be done
  // while it is decoded. What Parse got as usual, with what the text says.
  const RandomCut& cut() const { return cut_; }
  // Does all but the cut to an image, uint8 [height,width,3], of any size;
  // throws Error for another tensor. A function of the image and the key
  // (Dataset::MapRandom). What a part draws does not depend on the others, but
  // on how many of its name come before it.
  Tensor Apply(const Tensor& image, uint64_t key) const;
  // The ways for MixBatch to mix a batch. Empty: it is not mixed.
  std::vector<BatchMix> batch() const;

 private:
  struct Part {
    size_t kind = 0;  // in the table of augment.cc
    std::vector<double> arguments;
  };
  class Parser;

  Status TakeCut(const std::optional<RandomCut>& usual);

  std::vector<Part> parts_;
  std::array<uint8_t, 3> mean_{};
  RandomCut cut_;
};

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_AUGMENT_H_
