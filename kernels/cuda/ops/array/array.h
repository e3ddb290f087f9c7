// Sums of tiles. Other ops of this family only move elements (array_copy.h).
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"

namespace sluice::cuda {

// dx, a tile of dy: each of its elements is the sum of those in its place in
// all tiles. Plain data: it is passed to kernels.
struct TileShape {
  int rank = 0;
  int64_t elements = 1, tiles = 1;
  int64_t sizes[Shape::kMaxRank] = {};         // of a tile
  int64_t strides[Shape::kMaxRank] = {};       // of dy
  int64_t multiples[Shape::kMaxRank] = {};     // tiles along each dimension
  int64_t tile_strides[Shape::kMaxRank] = {};  // from a tile to the next
};

using TileGradLauncher = Status (*)(const TileShape& shape, const void* dy,
                                    void* dx, cudaStream_t stream);
// The launcher for any numeric dtype; sums of half types are taken in float.
TileGradLauncher FindTileGrad(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_H_
