// Ops that take positions as data, int32 or int64.
//
// An index that is out of range is reported to `bad` (bad_index.h). What has it
// goes on: it gathers zeros, adds nothing, makes a row of OneHot that is `off`
// everywhere, and is in no top k.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/semantics/gather_shape.h"
#include "engine/status.h"
#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// y = the slices of params, of any dtype, at the indices.
Status Gather(const GatherShape& shape, DType dtype, const void* params,
              DType index_dtype, const void* indices, void* y, BadIndex* bad,
              cudaStream_t stream);

// Bytes of device memory that ScatterAdd needs beside its operands.
size_t ScatterAddWorkspace(const GatherShape& shape, DType dtype);
// Whether indices can be numbered: size and count are not astronomical.
bool ScatterAddSupports(const GatherShape& shape);
// y = x with the updates added at the indices. The order of a place's sum
// depends on the indices alone. y may be x. Numeric dtypes; sums of half types
// are taken in float and rounded once.
Status ScatterAdd(const GatherShape& shape, DType dtype, const void* x,
                  DType index_dtype, const void* indices, const void* updates,
                  void* y, void* workspace, BadIndex* bad, cudaStream_t stream);

// y[n, depth] of `dtype`; on and off are the bytes of an element, repeated.
struct OneHotShape {
  int64_t n = 0, depth = 0;
  uint64_t on = 0, off = 0;
};
Status OneHot(const OneHotShape& shape, DType index_dtype, const void* indices,
              DType dtype, void* y, BadIndex* bad, cudaStream_t stream);

// The k largest of each row of x[rows, n], 1 <= k <= n.
struct TopKShape {
  int64_t rows = 0, n = 0, k = 0;
};
// Bytes of device memory that TopK needs beside its operands: none for small k.
size_t TopKWorkspace(const TopKShape& shape);
// values[rows, k] and where they are, the largest first; of equal elements the
// first, NaN above all. Numeric dtypes.
Status TopK(const TopKShape& shape, DType dtype, const void* x, void* values,
            int64_t* indices, void* workspace, cudaStream_t stream);
// y[row]: are fewer than k elements larger than x[row, targets[row]]? False for
// NaN, and for a target out of range. Floating dtypes.
Status InTopK(const TopKShape& shape, DType dtype, const void* x,
              DType index_dtype, const void* targets, bool* y, BadIndex* bad,
              cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_H_
