// What kind of convolution an op is: a fact of its record (OpDef::conv) that
// its kernels are told (KernelSpec::conv).
#ifndef SLUICE_ENGINE_CONV_FORM_H_
#define SLUICE_ENGINE_CONV_FORM_H_

#include <cstdint>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Which of its three products an op is: y of x and filter, dx of dy and filter,
// dfilter of x and dy.
enum class ConvPass : uint8_t { kForward, kInput, kFilter };

// Which convolution an op is. Meaningless for an op that is no convolution.
struct ConvForm {
  ConvPass pass = ConvPass::kForward;
  // Whether the filter, or its gradient, is OHWI (semantics/filter_layout.h).
  bool ohwi = false;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_CONV_FORM_H_
