// Convolutions that are matrix products: 1x1 windows, one beside the other.
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_PRODUCT_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_PRODUCT_H_

#include "engine/semantics/conv_geometry.h"
#include "kernels/cpu/conv/conv_epilogue.h"
#include "kernels/cpu/gemm/gemm.h"

namespace sluice::cpu {

inline bool IsMatrixProduct(const ConvGeometry& g) {
  auto plain = [](const WindowDim& d) {
    return d.window == 1 && d.stride == 1 && d.pad_before + d.pad_after == 0;
  };
  return g.groups == 1 && plain(g.h) && plain(g.w);
}

// The product of inputs 0 and 1, prepared without their pointers, and of what
// follows it in the fused ops.
class ConvProduct {
 public:
  ConvProduct(const Gemm<float>& prepared, const KernelSpec& spec)
      : prepared_(prepared), epilogue_of_(spec) {
    const Tensor* b = ConstantInput(spec, 1);
    if (b == nullptr) return;
    prepared_.b = b->data<float>();
    packed_ = PackB(prepared_);
    prepared_.packed_b = packed_.data<float>();
  }

  size_t workspace_bytes() const { return GemmWorkspace(prepared_); }

  // read_a: in place of input 0, where `prepared` has a reader too.
  void Run(const KernelContext& c, MatrixReader<float> read_a = {}) const {
    const ConvEpilogue epilogue = epilogue_of_(c);
    Gemm<float> gemm = prepared_;
    gemm.a = c.input<float>(0);
    gemm.read_a = read_a;
    gemm.b = c.input<float>(1);
    gemm.c = c.output<float>(0);
    gemm.bias = epilogue.bias;
    gemm.addend = epilogue.addend;
    gemm.relu = epilogue.relu;
    RunGemm(gemm, c.workspace());
  }

 private:
  Gemm<float> prepared_;
  Tensor packed_;
  ConvEpilogueOf epilogue_of_;
};

inline KernelPtr KernelOfProduct(const Gemm<float>& prepared,
                                 const KernelSpec& spec) {
  ConvProduct product(prepared, spec);
  const size_t bytes = product.workspace_bytes();
  return KernelOf([product](const KernelContext& c) { product.Run(c); }, bytes);
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_PRODUCT_H_
