// Convolutions that are matrix products: 1x1 windows, one beside the other.
#ifndef SLUICE_KERNELS_CPU_CONV_PRODUCT_H_
#define SLUICE_KERNELS_CPU_CONV_PRODUCT_H_

#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/gemm.h"

namespace sluice::cpu {

inline bool IsMatrixProduct(const ConvGeometry& g) {
  auto plain = [](const WindowDim& d) {
    return d.window == 1 && d.stride == 1 && d.pad_before + d.pad_after == 0;
  };
  return g.groups == 1 && plain(g.h) && plain(g.w);
}

// The kernel of a product of inputs 0 and 1; `prepared` lacks the pointers.
// constant_b: input 1 if it never changes, else null.
inline KernelPtr KernelOfProduct(Gemm<float> prepared,
                                 const Tensor* constant_b = nullptr) {
  Tensor packed;
  if (constant_b != nullptr) {
    prepared.b = constant_b->data<float>();
    packed = PackB(prepared);
    prepared.packed_b = packed.data<float>();
  }
  return KernelOf(
      [prepared, packed](const KernelContext& c) {
        Gemm<float> gemm = prepared;
        gemm.a = c.input<float>(0);
        gemm.b = c.input<float>(1);
        gemm.c = c.output<float>(0);
        RunGemm(gemm, c.workspace());
      },
      GemmWorkspace(prepared));
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_PRODUCT_H_
