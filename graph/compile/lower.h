// Lowering: one device's part of a step to a Plan.
#ifndef SLUICE_GRAPH_COMPILE_LOWER_H_
#define SLUICE_GRAPH_COMPILE_LOWER_H_

#include "engine/device.h"
#include "engine/runtime/executor_mode.h"
#include "engine/runtime/plan.h"
#include "graph/compile/step_part.h"

namespace sluice {

// Sets the mode that ExecutorMode::kAuto stands for in Plans made from now on,
// so that a whole test suite can run checked.
void SetAutoExecutor(ExecutorMode mode);

// The worker's half: chooses and prepares kernels, decides which outputs take
// over an input's buffer, and gives every buffer its offset. Needs no other
// part. Variables are declared in the device's store. Errors name the node.
Result<Plan> Compile(const StepPart& part, Device& device);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_LOWER_H_
