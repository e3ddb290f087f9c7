// Convolutions that are matrix products: 1x1 windows, one beside the other.
#ifndef SLUICE_KERNELS_CPU_CONV_PRODUCT_H_
#define SLUICE_KERNELS_CPU_CONV_PRODUCT_H_

#include "kernels/cpu/conv_epilogue.h"
#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/gemm.h"

namespace sluice::cpu {

inline bool IsMatrixProduct(const ConvGeometry& g) {
  auto plain = [](const WindowDim& d) {
    return d.window == 1 && d.stride == 1 && d.pad_before + d.pad_after == 0;
  };
  return g.groups == 1 && plain(g.h) && plain(g.w);
}

// The kernel of a product of inputs 0 and 1 and of what follows it in the fused
// ops; `prepared` lacks the pointers.
inline KernelPtr KernelOfProduct(Gemm<float> prepared, const KernelSpec& spec) {
  Tensor packed;
  if (const Tensor* b = ConstantInput(spec, 1)) {
    prepared.b = b->data<float>();
    packed = PackB(prepared);
    prepared.packed_b = packed.data<float>();
  }
  return KernelOf(
      [prepared, packed,
       epilogue_of = ConvEpilogueOf(spec)](const KernelContext& c) {
        const ConvEpilogue epilogue = epilogue_of(c);
        Gemm<float> gemm = prepared;
        gemm.a = c.input<float>(0);
        gemm.b = c.input<float>(1);
        gemm.c = c.output<float>(0);
        gemm.bias = epilogue.bias;
        gemm.addend = epilogue.addend;
        gemm.relu = epilogue.relu;
        RunGemm(gemm, c.workspace());
      },
      GemmWorkspace(prepared));
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_PRODUCT_H_
