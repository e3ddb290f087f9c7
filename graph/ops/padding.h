// How the options of windows that slide over images become attributes
// (engine/semantics/window.h reads them back).
#ifndef SLUICE_GRAPH_OPS_PADDING_H_
#define SLUICE_GRAPH_OPS_PADDING_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/attributes.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Zeros put around an image. kSame: as many as make the output's size
// ceil(input / stride), the odd row or column at the end (TensorFlow's rule).
// kValid: none. kExplicit: the amounts beside it.
enum class Padding : uint8_t { kSame, kValid, kExplicit };

template <size_t n>
std::vector<int64_t> ToInts(const std::array<int64_t, n>& values) {
  return {values.begin(), values.end()};
}

// The attributes that convolution and pooling share.
template <typename Options>
Attributes WindowAttributes(const Options& options) {
  constexpr const char* kNames[] = {"SAME", "VALID", "EXPLICIT"};
  return {{"strides", ToInts(options.strides)},
          {"padding", kNames[static_cast<int>(options.padding)]},
          {"explicit_padding", ToInts(options.explicit_padding)}};
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_PADDING_H_
