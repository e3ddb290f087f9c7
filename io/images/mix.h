// Mixing the pictures of a batch with each other, in training.
#ifndef SLUICE_IO_IMAGES_MIX_H_
#define SLUICE_IO_IMAGES_MIX_H_

#include <cstdint>
#include <span>

#include "engine/visibility.h"
#include "io/example.h"
#include "io/images/image.h"

namespace SLUICE_PUBLIC sluice {

class CounterRandom;

// A way of mixing two pictures. With lambda drawn from Beta(alpha, alpha) for
// each batch, alpha being finite and greater than 0:
struct BatchMix {
  enum class Kind : uint8_t {
    // Each value becomes lambda times the picture's own and 1 - lambda times
    // the other's ("mixup: Beyond Empirical Risk Minimization", Zhang et al.,
    // 2018; torchvision's v2.MixUp).
    kMixup,
    // The other's pixels in a CutBox of sides sqrt(1 - lambda) times the
    // picture's, whose centre may be anywhere in it ("CutMix: Regularization
    // Strategy to Train Strong Classifiers with Localizable Features", Yun et
    // al., 2019; torchvision's v2.CutMix).
    kCutmix
  };
  Kind kind;
  double alpha;
};

// Mixes each picture of a batch with the one before it, the first with the
// last, in one of the `ways`, of which there is at least one, all as likely.
//   "image"        float32 [n,height,width,channels], changed in place
//   "label"        int64 [n], which stays
//   "mixed_label"  int64 [n], added: the label of the other picture
//   "mixed_share"  float32 [n], added: how much of the mixture the other is,
//                  0 to 1; the same for the whole batch
// A picture alone is its own other and stays as it is. For Dataset::MapRandom
// behind Batch: workers that share out a batch draw the same for all of it, and
// each mixes the pictures of its share. Throws Error for other tensors.
void MixBatch(std::span<const BatchMix> ways, Example& batch, uint64_t key);

// Draws what MixBatch would, for pictures of rows x columns pixels, and leaves
// the mixing to MixImages (models/nn/mixed_images.h), which gives the same: the
// pictures may be bytes until a device has them (MapOptions::untouched). Beside
// "mixed_label" and "mixed_share" adds, for each picture,
//   "mixed_with"     int64 [n]: the number of the other one in the batch
//   "mixed_own", "mixed_other"  float32 [n,1,1,1]: factors of the two
//   "mixed_rows" bool [n,rows,1,1], "mixed_columns" bool [n,1,columns,1]: where
//                    both hold the other's pixel takes the place of the sum
void DrawMix(std::span<const BatchMix> ways, int64_t rows, int64_t columns,
             Example& batch, uint64_t key);

// The part of rows x columns pixels that the other picture replaces, cut off at
// the edges: around the pixel (y, x), half of sqrt(1 - lambda) times each side,
// rounded down, to both directions. May be empty.
ImagePart CutBox(int64_t rows, int64_t columns, double lambda, int64_t y,
                 int64_t x);

// A number drawn from Beta(alpha, alpha), 0 to 1, ends included where alpha is
// so small that it rounds to them.
double DrawBeta(double alpha, CounterRandom& random);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_MIX_H_
