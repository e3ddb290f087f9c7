// Elementwise ops: the functions of engine/semantics/scalar.h over arrays, with
// NumPy's broadcasting for those of several operands. Outputs may be an operand
// of the same size. Launchers are found once, when a kernel is made, and then
// called.
#ifndef SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "kernels/cuda/device/array_list.h"

namespace sluice::cuda {

// A function's parameters, in the order of its fields in
// engine/semantics/scalar.h.
struct OpParams {
  double a = 0, b = 0;
  int64_t low = 0, high = 0;  // of Clip of integers, in place of a and b
};

// How up to three operands broadcast to an output. Plain data: it is passed to
// kernels. Neighbouring dimensions are merged where possible.
struct Broadcast {
  static constexpr int kMaxOperands = 3;
  int64_t elements = 0;
  int rank = 0;
  int64_t dims[Shape::kMaxRank] = {};
  int64_t strides[kMaxOperands][Shape::kMaxRank] = {};  // 0: repeated
};
// The shapes must broadcast to `output`.
Broadcast BroadcastOf(const Shape& output, std::span<const Shape> operands);

// y[i] = Op(x[i]) for n elements.
using UnaryLauncher = Status (*)(const void* x, void* y, int64_t n,
                                 OpParams params, cudaStream_t stream);
// `function` is a name of engine/semantics/scalar.h ("GeluTanh"), the dtype
// x's. Null if there is no kernel: floating dtypes have all, integers
// arithmetic and comparisons, bool what is logical.
UnaryLauncher FindUnary(std::string_view function, DType dtype);
// y = x converted: floats out of an integer's range become the nearest in
// range, NaN 0. From and to any dtype.
UnaryLauncher FindCast(DType from, DType to);
// The list's float32 arrays converted to float16 or bfloat16.
using CastListLauncher = Status (*)(const ArrayList& list, cudaStream_t stream);
CastListLauncher FindCastList(DType to);

using BinaryLauncher = Status (*)(const void* a, const void* b, void* y,
                                  const Broadcast& shape, OpParams params,
                                  cudaStream_t stream);
BinaryLauncher FindBinary(std::string_view function, DType dtype);

// y = condition ? a : b, of elements of 1, 2, 4 or 8 bytes; the operands of
// `shape` are in this order.
using SelectLauncher = Status (*)(const bool* condition, const void* a,
                                  const void* b, void* y,
                                  const Broadcast& shape, cudaStream_t stream);
SelectLauncher FindSelect(DType dtype);

// y = the sum of arrays of n elements, of one or more, from the first to the
// last; halves are summed in float32 and rounded once. A launch takes up to
// kMostTerms, each further one what the sum is so far and kMostTerms - 1: so y
// may be any of the arrays where one launch does, else the first, which no
// other may overlap. `sums` is AddNWorkspace.
inline constexpr int kMostTerms = 256;
using AddNLauncher = Status (*)(std::span<const void* const> terms, void* y,
                                int64_t n, void* sums, cudaStream_t stream);
AddNLauncher FindAddN(DType dtype);  // numeric
// Bytes that sums of halves take between launches; 0 for other dtypes.
size_t AddNWorkspace(DType dtype, size_t terms, int64_t n);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_H_
