// The inner loops of Resampler (io/images/resample.h): weighted sums of pixels,
// in Pillow's arithmetic. Weights are integers of kWeightBits fractional bits,
// and the sums are rounded to bytes. Internal to io.
#ifndef SLUICE_IO_IMAGES_RESAMPLE_LOOPS_H_
#define SLUICE_IO_IMAGES_RESAMPLE_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// Weights are not negative and those of a new pixel sum to about 1, so that
// sums of bytes stay within int32.
inline constexpr int kWeightBits = 22;

// How the new pixels of one axis are made of old ones.
struct ResampleKernel {
  // A new pixel's old ones: [first, first + count).
  struct Source {
    int64_t first = 0, count = 0;
  };
  std::vector<Source> sources;  // `first` never falls, or never rises
  // `taps` for each source, the first `count` of which are its weights and the
  // others 0. A multiple of kTapGroup, and the same for all, so that loops take
  // a group at a time and their length is foreseen.
  std::vector<int32_t> weights;
  static constexpr int64_t kTapGroup = 4;
  int64_t taps = 0;

  const int32_t* weights_of(int64_t i) const {
    return weights.data() + i * taps;
  }
};

struct ResampleLoops {
  // A row of `width` pixels of `channels` bytes becomes one of
  // sources.size() pixels.
  void (*across)(const ResampleKernel& kernel, const uint8_t* row,
                 int64_t width, int64_t channels, uint8_t* out);
  // New row `i` of rows of `row_bytes`.
  void (*down)(const ResampleKernel& kernel, int64_t i, const uint8_t* rows,
               int64_t row_bytes, uint8_t* out);
};

const ResampleLoops& PortableResampleLoops();
// The loops with AVX2 where this machine has it; they give the same bytes.
const ResampleLoops& FastestResampleLoops();

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_RESAMPLE_LOOPS_H_
