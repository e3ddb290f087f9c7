// The arguments of fused kernels, as plain data. NVRTC takes this file as text.
#ifndef SLUICE_KERNELS_CUDA_FUSED_FUSED_ARGUMENTS_H_
#define SLUICE_KERNELS_CUDA_FUSED_FUSED_ARGUMENTS_H_

#ifdef __CUDACC_RTC__
using int64_t = long;
#else
#include <cstdint>
#endif

namespace sluice::cuda {

inline constexpr int kMostFusedInputs = 24;
inline constexpr int kMostFusedOutputs = 8;
inline constexpr int kMostFusedDims = 8;
inline constexpr int kFusedThreads = 256;  // of a block

// How the elements, rows x columns of them, are summed: each row for itself
// ("trailing"), or the rows with each other ("leading"). Where that alone would
// leave a GPU idle, or have a thread add up very many, what is summed is cut
// into segments, whose sums a second kernel adds. All of it follows from the
// shape.
struct FusedSumShape {
  int64_t rows, columns;
  int64_t segment;   // columns or rows of one
  int64_t segments;  // per row, or of all rows
  int lanes;         // threads that share a row: of elements, or of packs
  bool states;       // the sums are not scaled nor rounded: for that kernel
  double scale;
};

// The one parameter of generated kernels.
struct FusedArguments {
  const void* inputs[kMostFusedInputs];
  void* outputs[kMostFusedOutputs];  // the sum is not among them
  int64_t elements;
  // Inputs that repeat do so over these dimensions, innermost last.
  int64_t dims[kMostFusedDims];
  int64_t strides[kMostFusedInputs][kMostFusedDims];
  bool rows;   // packs lie within rows of the innermost dimension
  bool whole;  // and may be loaded and stored at once
  // FusedSum. Trailing: a row's segments side by side; leading: a segment's
  // columns.
  void* sums;
  FusedSumShape sum;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_FUSED_ARGUMENTS_H_
