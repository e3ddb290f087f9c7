// Ops that take positions as data, int32 or int64.
//
// A kernel cannot report an index that is out of range: such an index gathers
// zeros, adds nothing, and makes a row of OneHot that is `off` everywhere.
#ifndef SLUICE_KERNELS_CUDA_INDEX_H_
#define SLUICE_KERNELS_CUDA_INDEX_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/gather_shape.h"
#include "engine/status.h"

namespace sluice::cuda {

// y = the slices of params, of any dtype, at the indices.
Status Gather(const GatherShape& shape, DType dtype, const void* params,
              DType index_dtype, const void* indices, void* y,
              cudaStream_t stream);

// Bytes of device memory that ScatterAdd needs beside its operands.
size_t ScatterAddWorkspace(const GatherShape& shape);
// Whether indices can be numbered: size and count are not astronomical.
bool ScatterAddSupports(const GatherShape& shape);
// y = x with the updates added at the indices, each place's in their order. y
// may be x. Numeric dtypes; sums of half types are taken in float and rounded
// once.
Status ScatterAdd(const GatherShape& shape, DType dtype, const void* x,
                  DType index_dtype, const void* indices, const void* updates,
                  void* y, void* workspace, cudaStream_t stream);

// y[n, depth] of `dtype`; on and off are the bytes of an element, repeated.
struct OneHotShape {
  int64_t n = 0, depth = 0;
  uint64_t on = 0, off = 0;
};
Status OneHot(const OneHotShape& shape, DType index_dtype, const void* indices,
              DType dtype, void* y, cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_INDEX_H_
