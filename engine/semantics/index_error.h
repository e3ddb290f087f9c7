// What kernels of all devices say of indices and labels that are out of range.
// The executor puts the node before it.
#ifndef SLUICE_ENGINE_SEMANTICS_INDEX_ERROR_H_
#define SLUICE_ENGINE_SEMANTICS_INDEX_ERROR_H_

#include <cstdint>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// `index` as text: a device may only know that it is beyond some number.
Status IndexOutOfRange(std::string_view index, int64_t position, int64_t limit);
Status LabelOutOfRange(std::string_view label, int64_t row, int64_t classes);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_INDEX_ERROR_H_
