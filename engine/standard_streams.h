// The standard streams of a program whose parent has closed some of them.
#ifndef SLUICE_ENGINE_STANDARD_STREAMS_H_
#define SLUICE_ENGINE_STANDARD_STREAMS_H_

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Where descriptor 0, 1 or 2 is closed /dev/null takes its place, before the
// first file or socket does and gets what is printed. Reading and printing are
// errors as before, EBADF, unless `usable`. For the beginning of main.
void OpenStandardStreams(bool usable = false);

}  // namespace sluice

#endif  // SLUICE_ENGINE_STANDARD_STREAMS_H_
