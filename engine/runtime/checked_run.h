// A distrustful way to run a Plan on the host, for tests: what a kernel or the
// memory plan does wrong shows as an error, or as NaN, rather than by chance.
#ifndef SLUICE_ENGINE_RUNTIME_CHECKED_RUN_H_
#define SLUICE_ENGINE_RUNTIME_CHECKED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/runtime/plan.h"
#include "engine/status.h"

namespace sluice {

// Checks a run of a Plan in which no two buffers share memory (Plan::checked).
// A buffer that has not been written yet, or will not be used again, holds
// kPoison: NaN in every floating dtype. Borrows the Plan.
class CheckedRun {
 public:
  static constexpr unsigned char kPoison = 0xff;

  explicit CheckedRun(const Plan& plan);

  // Before the first instruction; `operands` is parallel to Plan::locations.
  void Begin(char* arena, void* const* operands);
  // Around each instruction, in order. After returns an error if it changed an
  // input that it does not update, or wrote around an output or workspace.
  void Before(uint32_t instruction);
  Status After(uint32_t instruction);

 private:
  struct Kept {
    int input;
    std::vector<char> bytes;
  };

  const Plan& plan_;
  std::vector<std::vector<uint32_t>> last_used_;  // Plan::buffers
  std::vector<bool> waits_;  // which instructions are (Plan::pending)
  char* arena_ = nullptr;
  void* const* operands_ = nullptr;
  std::vector<Kept> kept_;  // the inputs of the instruction under way
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_CHECKED_RUN_H_
