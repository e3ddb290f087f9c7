// What an instruction is to people: its node, and who asked for it.
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
  std::vector<TensorType> outputs;  // that are there when it has run
  std::string location = {};        // "model.cc:41"
  int mutates = 0;                  // how many leading inputs it updates
  // Who made its kernel ("cudnn"), and which better ones refused, and why
  // (MadeKernel). Empty on a device that only plans.
  std::string provider = {}, refused = {};

  std::string Who() const;  // "MatMul 'fc1/matmul'"
  // The status with who failed and the line that asked for it.
  Status Blame(const Status& status) const;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_LABEL_H_
