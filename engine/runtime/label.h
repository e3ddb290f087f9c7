// Labels that describe an instruction to people: its node, and the user's line.
#ifndef SLUICE_ENGINE_RUNTIME_LABEL_H_
#define SLUICE_ENGINE_RUNTIME_LABEL_H_

#include <string>
#include <vector>

#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

struct InstructionLabel {
  std::string node;
  std::string op;
  std::vector<TensorType> outputs;  // types of the outputs after it has run
  std::string location = {};        // "model.cc:41"
  int mutates = 0;                  // how many leading inputs it updates
  // The provider of the kernel ("cudnn"), and the better ones that could not
  // make one, and why (MadeKernel). Empty on a device that only plans.
  std::string provider = {}, refused = {};

  std::string Who() const;  // "MatMul 'fc1/matmul'"
  // The status with the failed node and the user's line added.
  Status Blame(const Status& status) const;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_LABEL_H_
