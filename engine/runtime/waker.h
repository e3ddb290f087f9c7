// Who is told that a wait has ended.
#ifndef SLUICE_ENGINE_RUNTIME_WAKER_H_
#define SLUICE_ENGINE_RUNTIME_WAKER_H_

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Given to what a part of a step waits for, in place of a thread that waits.
class Waker {
 public:
  // What was waited for may be there now: look again. From any thread and with
  // any locks held; it does no more than note it. More often than needed does
  // no harm.
  virtual void Wake() = 0;

 protected:
  ~Waker() = default;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_WAKER_H_
