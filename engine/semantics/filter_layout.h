// The two layouts of a convolution's filter. HWIO, [h, w, channels per group,
// outputs], is that of variables and of the ops that users build; OHWI is what
// cuDNN reads, and of ops of their own (ConvForm). As matrices they are each
// other's transpose.
#ifndef SLUICE_ENGINE_SEMANTICS_FILTER_LAYOUT_H_
#define SLUICE_ENGINE_SEMANTICS_FILTER_LAYOUT_H_

#include <cstdint>
#include <string_view>

#include "engine/shape.h"

namespace sluice {

inline Shape OhwiOf(const Shape& hwio) {
  return {hwio[3], hwio[0], hwio[1], hwio[2]};
}
inline Shape HwioOf(const Shape& ohwi) {
  return {ohwi[1], ohwi[2], ohwi[3], ohwi[0]};
}

// The matrix that a filter is, in either layout: what turns it transposes that.
struct FilterMatrix {
  int64_t rows = 0, columns = 0;
};
inline FilterMatrix MatrixOf(const Shape& filter, bool ohwi) {
  return ohwi ? FilterMatrix{filter[0], filter.elements(1, 4)}
              : FilterMatrix{filter.elements(0, 3), filter[3]};
}

// Whether TurnFilters of this attribute `layout`, which it makes, finds them
// OHWI.
inline bool TurnsFromOhwi(std::string_view layout) {
  return layout == "HWIO";
}
// The most that a GPU's kernel turns in one launch.
inline constexpr int kMostFilters = 128;

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_FILTER_LAYOUT_H_
