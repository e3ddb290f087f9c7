// What the fused forms of Conv2D do with their sums before they are stored:
// y = act(sum + bias + addend).
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_

#include "engine/kernel.h"

namespace sluice::cpu {

inline constexpr const char* kConvolutions[] = {"Conv2D", "Conv2DBias",
                                                "Conv2DBiasAdd"};

struct ConvEpilogue {
  const float* bias = nullptr;    // [channels of y], or null
  const float* addend = nullptr;  // as y, maybe y itself; or null
  bool relu = false;
};

// The epilogues of a kernel's runs; empty ones unless the op is Conv2DBias or
// Conv2DBiasAdd.
class ConvEpilogueOf {
 public:
  explicit ConvEpilogueOf(const KernelSpec& spec)
      : bias_(spec.op.starts_with("Conv2DBias")),
        addend_(spec.op == "Conv2DBiasAdd"),
        relu_(bias_ && spec.attrs.Bool("relu")) {}

  ConvEpilogue operator()(const KernelContext& c) const {
    return {bias_ ? c.input<float>(2) : nullptr,
            addend_ ? c.input<float>(3) : nullptr, relu_};
  }

 private:
  bool bias_, addend_, relu_;
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_EPILOGUE_H_
