// Texts that grow by bytes from elsewhere. Internal to io.
#ifndef SLUICE_IO_FILES_GROW_TEXT_H_
#define SLUICE_IO_FILES_GROW_TEXT_H_

#include <cstddef>
#include <functional>
#include <string>

#include "engine/status.h"

namespace sluice {

// Makes `text` longer, by at most `more` bytes, which `fill` writes: it is
// given where they go, and says how many of them, from the first on, it wrote.
// Nobody writes zeros there before, so memory is touched by what is filled
// alone, and by the threads that fill it. Errors leave the text as it was:
// those of `fill`, also what it throws (CaughtStatus), and kResourceExhausted.
Status GrowText(std::string* text, size_t more,
                const std::function<Result<size_t>(char*)>& fill);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_GROW_TEXT_H_
