// The inner loops of convolution, straight from images: no patch matrix.
//
// Every output pixel is the product of the pieces of the padded image under its
// window, `runs` of consecutive floats, with the filter as a matrix; pixels
// differ only in where the runs begin. So the register tile of a matrix product
// serves, with A read through pointers into the image (compare Dukhan, "The
// indirect convolution algorithm", 2019).
#ifndef SLUICE_KERNELS_CPU_SIMD_CONV_H_
#define SLUICE_KERNELS_CPU_SIMD_CONV_H_

#include <cstdint>

namespace sluice::simd {

// Consecutive floats of an image, from an offset to a pixel's first element.
struct ConvRun {
  int64_t offset;
  int64_t length;
};

// Steps of k that are added one to another: in one float sum of very many the
// last digits of each would be lost. As long as usual runs, such as those of 3
// pixels of 64 channels or 5 of 32, which need not be cut then.
inline constexpr int64_t kConvSteps = 192;
// Columns of a grid that filter_grad sums at a time, for the same reason.
inline constexpr int64_t kConvColumns = 256;

// The images' side: a grid of pixels, pixel (r, q) at
// image + r * row_step + q * pixel_step, and the runs that each reads.
struct ConvGrid {
  const float* image = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_step = 0, pixel_step = 0;
  const ConvRun* runs = nullptr;
  int64_t num_runs = 0;
};

// y[r, q, 0 .. channels) = the grid's runs, one after another, times the
// filter [k, channels]; k is the sum of the runs' lengths. Then y =
// act(y + bias + addend), act = max(0, x) if relu.
struct ConvForward {
  ConvGrid grid;
  // The filter in panels of `width` channels, k * width floats apart, each
  // stored k-major and padded with zeros: GemmKernels<float>::pack makes them.
  const float* filter = nullptr;
  int64_t k = 0;
  int64_t channels = 0;
  float* y = nullptr;
  int64_t y_row_step = 0, y_pixel_step = 0;
  const float* bias = nullptr;    // [channels], or null
  const float* addend = nullptr;  // laid out as y, maybe y itself; or null
  bool relu = false;
};

// dfilter[k, channels] += the sum over the grid of runs (as a column) times dy.
struct ConvFilterGrad {
  ConvGrid grid;
  // The grid's pixels one after another, dy_pixel_step floats apart.
  const float* dy = nullptr;
  int64_t dy_pixel_step = 0;
  int64_t channels = 0;
  float* dfilter = nullptr;
  int64_t dfilter_stride = 0;  // between rows of k
  // Rows of the grid that are summed before the next ones are touched; 1 where
  // the grid has more than kConvColumns columns, of which so many are summed at
  // a time.
  int64_t block_rows = 0;
  // block_rows * columns, or kConvColumns if that is less, times `width`.
  float* scratch = nullptr;
};

struct ConvKernels {
  int width;  // channels of a panel, the same as GemmKernels<float>::columns
  void (*forward)(const ConvForward& conv);
  void (*filter_grad)(const ConvFilterGrad& conv);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_CONV_H_
