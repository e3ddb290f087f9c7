// Resizes a part of an image in one pass over its rows. Internal to io.
#ifndef SLUICE_IO_IMAGES_RESAMPLE_H_
#define SLUICE_IO_IMAGES_RESAMPLE_H_

#include <cstdint>

#include "engine/tensor.h"
#include "io/images/image.h"
#include "io/images/resample_loops.h"

namespace sluice {

// `part` of an image is resized to height x width, as by Resize of a Crop; of
// that, `kept` remains, which is then perhaps flipped from left to right.
struct Resampling {
  ImagePart part;
  int64_t height = 0, width = 0;
  ImagePart kept;
  bool flip = false;
};

// Takes an image's rows as they come, so that they need not lie in memory all
// at once.
class Resampler {
 public:
  Resampler(const Resampling& resampling, int64_t channels);

  // What of the image the result depends on.
  const ImagePart& needed() const { return needed_; }
  // The next row of needed(), from the top: needed().width * channels bytes.
  // Not to be called more than needed().height times.
  void Add(const uint8_t* row);
  // All of these, the first of which is at `first`, each so many bytes behind
  // the one before.
  void AddAll(const uint8_t* first, int64_t row_bytes);
  // uint8 [kept.height,kept.width,channels], once all rows are added.
  const Tensor& result() const { return result_; }

 private:
  const int64_t channels_;
  ImagePart needed_;
  ResampleKernel across_, down_;
  Tensor narrow_;  // the rows of needed(), resized across
  Tensor result_;
  int64_t added_ = 0;     // rows of narrow_
  int64_t finished_ = 0;  // rows of result_
};

Tensor Resample(const Tensor& image, const Resampling& resampling);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_RESAMPLE_H_
