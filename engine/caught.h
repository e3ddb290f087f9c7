// Converts exceptions of users' code to a Status.
#ifndef SLUICE_ENGINE_CAUGHT_H_
#define SLUICE_ENGINE_CAUGHT_H_

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// The exception that is being handled: an Error's own status,
// kResourceExhausted for std::bad_alloc, kInvalidArgument with what() for the
// rest. Call it within a catch block only.
Status CaughtStatus();

}  // namespace sluice

#endif  // SLUICE_ENGINE_CAUGHT_H_
