// Exceptions become a Status at the door of a function that throws none.
#ifndef SLUICE_ENGINE_CATCH_ERRORS_H_
#define SLUICE_ENGINE_CATCH_ERRORS_H_

#include <type_traits>

#include "engine/caught.h"
#include "engine/status.h"

namespace sluice {

// Runs fn, which is the user's, or allocates what the outside asks for, and
// turns what it throws into a Status. It returns a Status or a Result, which is
// what is returned then, or nothing.
template <typename Fn>
auto CatchErrors(const Fn& fn) {
  using Returned = decltype(fn());
  using Caught = std::conditional_t<std::is_void_v<Returned>, Status, Returned>;
  try {
    if constexpr (std::is_void_v<Returned>) {
      fn();
      return Caught();
    } else {
      return fn();
    }
  } catch (...) {
    return Caught(CaughtStatus());
  }
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_CATCH_ERRORS_H_
