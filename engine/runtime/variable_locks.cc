#include "engine/runtime/variable_locks.h"

#include <functional>
#include <map>

namespace sluice {

VariableLocks::VariableLocks(const Plan& plan) {
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    std::map<Variable*, bool, std::less<>> written;
    const int operands = instruction.num_inputs + instruction.num_outputs;
    for (int o = 0; o < operands; ++o) {
      const Location& at = plan.locations[instruction.first_location + o];
      if (at.kind != Location::Kind::kVariable) continue;
      written[plan.variables[at.index]] |= o < plan.labels[i].mutates;
    }
    first_.push_back(static_cast<uint32_t>(uses_.size()));
    for (const auto& [variable, writes] : written) {
      uses_.push_back({variable, writes});
    }
  }
  first_.push_back(static_cast<uint32_t>(uses_.size()));
}

// Which they are is known only when the Plan is.
VariableLocks::Scope::Scope(const VariableLocks* locks,
                            uint32_t instruction) NO_THREAD_SAFETY_ANALYSIS
    : locks_(locks),
      instruction_(instruction) {
  if (locks_ == nullptr) return;
  for (uint32_t u = locks_->first_[instruction];
       u < locks_->first_[instruction + 1]; ++u) {
    const Use& use = locks_->uses_[u];
    if (use.writes) {
      use.variable->mutex.Lock();
    } else {
      use.variable->mutex.LockShared();
    }
  }
}

VariableLocks::Scope::~Scope() NO_THREAD_SAFETY_ANALYSIS {
  if (locks_ == nullptr) return;
  for (uint32_t u = locks_->first_[instruction_ + 1];
       u-- > locks_->first_[instruction_];) {
    const Use& use = locks_->uses_[u];
    if (use.writes) {
      use.variable->mutex.Unlock();
    } else {
      use.variable->mutex.UnlockShared();
    }
  }
}

}  // namespace sluice
