// Wakers, which are told that a wait may have ended.
#ifndef SLUICE_ENGINE_RUNTIME_WAKER_H_
#define SLUICE_ENGINE_RUNTIME_WAKER_H_

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Represents a part of a step that waits, without a thread waiting for it.
class Waker {
 public:
  // Says that the wait may have ended, so that the part looks again. May be
  // called from any thread and with any locks held, since it only notes this;
  // more calls than needed do no harm.
  virtual void Wake() = 0;

 protected:
  ~Waker() = default;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_WAKER_H_
