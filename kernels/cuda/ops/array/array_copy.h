// Copies between strided arrays: what ops that only rearrange come down to.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_COPY_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_COPY_H_

#include <cuda_runtime.h>

#include "engine/dtype.h"
#include "engine/semantics/strided_move.h"
#include "engine/status.h"

namespace sluice::cuda {

// Moves elements of `dtype`. `name` is for messages.
Status CopyStrided(const char* name, const StridedMove& move, DType dtype,
                   const void* from, void* to, cudaStream_t stream);

// An op that is MoveOf(spec), to all of its output.
Result<KernelPtr> MakeMove(const KernelSpec& spec);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_ARRAY_COPY_H_
