#include "engine/caught.h"

#include <exception>
#include <new>

namespace sluice {

Status CaughtStatus() {
  try {
    throw;
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");
  } catch (const std::exception& error) {
    return InvalidArgument(error.what());
  } catch (...) {
    return InvalidArgument("an exception that is no std::exception");
  }
}

}  // namespace sluice
