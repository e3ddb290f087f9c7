// The epilogue of the fused forms of Conv2D, on sums before they are stored: y
// = act(sum + bias + addend).
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_

#include "engine/kernel.h"
#include "engine/semantics/conv_geometry.h"
#include "engine/semantics/product.h"

namespace sluice::cpu {

inline constexpr const char* kConvolutions[] = {"Conv2D", "Conv2DBias",
                                                "Conv2DBiasAdd"};

struct ConvEpilogue {
  const float* bias = nullptr;    // [channels of y], or null
  const float* addend = nullptr;  // as y, maybe y itself; or null
  bool relu = false;
};

// The epilogues of a kernel's runs. The third operand of a convolution forward
// is a bias, the fourth an addend; without them they are empty.
class ConvEpilogueOf {
 public:
  explicit ConvEpilogueOf(const KernelSpec& spec)
      : bias_(HasOperand(spec, 2)),
        addend_(HasOperand(spec, 3)),
        relu_(HasRelu(spec)) {}

  ConvEpilogue operator()(const KernelContext& c) const {
    return {bias_ ? c.input<float>(2) : nullptr,
            addend_ ? c.input<float>(3) : nullptr, relu_};
  }

 private:
  static bool HasOperand(const KernelSpec& spec, size_t i) {
    return spec.conv.pass == ConvPass::kForward && spec.inputs.size() > i;
  }

  bool bias_, addend_, relu_;
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_
