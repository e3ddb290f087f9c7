// The locks of shared variables that the instructions of a Plan take.
#ifndef SLUICE_ENGINE_RUNTIME_VARIABLE_LOCKS_H_
#define SLUICE_ENGINE_RUNTIME_VARIABLE_LOCKS_H_

#include <cstdint>
#include <vector>

#include "engine/runtime/plan.h"
#include "engine/thread_annotations.h"
#include "engine/variable_store.h"

namespace sluice {

// Immutable. Instructions lock what they use in one order, that of addresses,
// so that two of them never wait for each other.
class VariableLocks {
 public:
  explicit VariableLocks(const Plan& plan);

  // Holds those of an instruction. `locks` may be null: none.
  class Scope {
   public:
    Scope(const VariableLocks* locks, uint32_t instruction);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const VariableLocks* locks_;
    uint32_t instruction_;
  };

 private:
  struct Use {
    Variable* variable;
    bool writes;
  };
  std::vector<Use> uses_;
  std::vector<uint32_t> first_;  // in uses_, by instruction; and their end
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_VARIABLE_LOCKS_H_
