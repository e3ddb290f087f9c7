// How the instructions of a Plan are run.
#ifndef SLUICE_ENGINE_RUNTIME_EXECUTOR_MODE_H_
#define SLUICE_ENGINE_RUNTIME_EXECUTOR_MODE_H_

#include <cstdint>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

enum class ExecutorMode : uint8_t {
  kAuto,      // serial unless independent branches of small nodes dominate
  kSerial,    // in schedule order; kernels use all threads
  kDataflow,  // by dependency counts; kernels run on one thread each
  // For tests of the engine: in schedule order, no memory used twice, each
  // instruction checked for what it must not change, and what no instruction
  // reads any more overwritten (engine/runtime/checked_run.h). Slow, and large.
  // On the host; elsewhere as kAuto.
  kChecked,
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_EXECUTOR_MODE_H_
