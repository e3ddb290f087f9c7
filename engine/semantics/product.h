// The sizes of a matrix product, from any of its ops. The kernels of all
// devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_PRODUCT_H_
#define SLUICE_ENGINE_SEMANTICS_PRODUCT_H_

#include "engine/kernel.h"

namespace sluice {

// C[m,n] = op(A) op(B), one matrix or one of a batch. A is [m,k], or [k,m]
// where it is transposed; B is [k,n] or [n,k].
struct Product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

inline Product ProductOf(const KernelSpec& spec) {
  const Shape& a = spec.inputs[0].shape;
  const Shape& c = spec.outputs[0].shape;
  const bool ta = spec.attrs.Bool("transpose_a");
  return {c[-2], c[-1], a[ta ? -2 : -1], ta, spec.attrs.Bool("transpose_b")};
}

// What input 2 is to a product: nothing, a vector added to each row, or a
// matrix.
enum class Added : uint8_t { kNothing, kBias, kMatrix };

inline Added AddedTo(const KernelSpec& spec) {
  if (spec.inputs.size() < 3) return Added::kNothing;
  return spec.inputs[2].shape.rank() == 1 ? Added::kBias : Added::kMatrix;
}

// Is max(0, .) taken in the end, of a product or a convolution?
inline bool HasRelu(const KernelSpec& spec) {
  return spec.attrs.Has("relu") && spec.attrs.Bool("relu");
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_PRODUCT_H_
