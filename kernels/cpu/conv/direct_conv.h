// A convolution as the vector code computes it (kernels/cpu/simd/conv.h):
// windows over padded copies of images, one grid of pixels at a time.
//
// The gradient with respect to the input is a convolution too, of dy with the
// filter turned around. With stride s it falls into s * s of them, one for the
// input pixels of each remainder modulo the strides, each with the taps that
// meet such pixels; so no zeros are multiplied. Those that none meets are left
// out, so that there are never more than taps.
#ifndef SLUICE_KERNELS_CPU_CONV_DIRECT_CONV_H_
#define SLUICE_KERNELS_CPU_CONV_DIRECT_CONV_H_

#include <cstdint>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/semantics/conv_geometry.h"
#include "kernels/cpu/simd/conv.h"

namespace sluice::cpu {

// The images that windows are laid on, seen one group of channels at a time.
struct ConvSource {
  int64_t h = 0, w = 0;
  int64_t channels = 0;  // of all groups
  int64_t group_channels = 0;
  // The area that the windows touch: [top, top + height) x [left, left +
  // width), partly outside the image.
  int64_t top = 0, left = 0, height = 0, width = 0;
  // Whether that area must be copied first, group by group, with zeros around;
  // else the windows read the image itself.
  bool copied = true;

  int64_t pixel_floats() const { return copied ? group_channels : channels; }
  int64_t row_floats() const { return pixel_floats() * (copied ? width : w); }
  // Floats of a copy; 0 where none is made.
  int64_t copy_floats() const { return copied ? height * row_floats() : 0; }
  // Copies rows [begin, end), counted from `top`, of one group.
  void CopyRows(const float* image, int64_t group, int64_t begin, int64_t end,
                float* copy) const;
  // Where the windows read: `copy`, or the part of the image.
  const float* Base(const float* image, const float* copy) const {
    return copied ? copy : image + (top * w + left) * channels;
  }
};

// One grid of result pixels, and the taps that all its pixels have.
struct ConvPhase {
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 1, column_stride = 1;  // source pixels between two
  // Source rows, counted from `top`, that the grid's first row reads.
  int64_t first_row = 0, end_row = 0;
  std::vector<int64_t> taps;  // kh * window_w + kw, in the order of the runs
  std::vector<simd::ConvRun> runs;
  int64_t k = 0;  // sum of the runs' lengths
  // The grid's place and steps in the result image, in floats.
  int64_t y_offset = 0, y_row_step = 0, y_pixel_step = 0;
};

struct DirectConv {
  ConvSource source;
  std::vector<ConvPhase> phases;
  bool gaps = false;  // whether there are result pixels of none, which are 0
  int64_t result_channels = 0;  // per group
  // Element (source channel, result channel) of tap t's matrix of group g is at
  // filter + t * tap_step + g * group_step + i * row_step + j * column_step.
  int64_t tap_step = 0, group_step = 0, row_step = 0, column_step = 0;

  simd::ConvGrid Grid(const ConvPhase& phase, const float* base) const {
    return {.image = base,
            .rows = phase.rows,
            .columns = phase.columns,
            .row_step = phase.row_stride * source.row_floats(),
            .pixel_step = phase.column_stride * source.pixel_floats(),
            .runs = phase.runs.data(),
            .num_runs = static_cast<int64_t>(phase.runs.size())};
  }
};

// Pieces of work to aim at where sizes allow.
inline constexpr int64_t kConvPieces = 16;

// Floats up to the next cache line, where a workspace's next buffer begins.
inline int64_t Aligned(int64_t floats) {
  constexpr int64_t kLine = kAlignment / sizeof(float);
  return RoundUp(floats, kLine);
}

// Whether the area that the windows of a pass touch is little more than the
// images and the windows: strides, dilations and padding may make it, and its
// copy, as large as they like.
bool CopiesFit(const ConvGeometry& geometry, ConvPass pass);

// Whether the kernels of register tiles (conv_fast.cc, conv_filter.cc) serve a
// convolution: by copies, or else by patches, which are never stored.
bool TilesServe(const KernelSpec& spec);

DirectConv ForwardConv(const ConvGeometry& geometry);
DirectConv BackpropInputConv(const ConvGeometry& geometry);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_DIRECT_CONV_H_
