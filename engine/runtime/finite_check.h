// Looks for values that are not finite in arrays, and in every output of a
// step.
#ifndef SLUICE_ENGINE_RUNTIME_FINITE_CHECK_H_
#define SLUICE_ENGINE_RUNTIME_FINITE_CHECK_H_

#include <cstdint>
#include <string>

#include "engine/dtype.h"
#include "engine/runtime/trace.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Whether all elements of a floating-point array are finite; true for others.
bool AllFinite(DType dtype, const void* data, int64_t n);
// AllFinite of a tensor in the host's memory.
bool AllFinite(const Tensor& tensor);

// Ends the step at the first output with a NaN or an infinity; then node() is
// its name. Or only notes it: where other workers wait for this step.
class FiniteCheck final : public Observer {
 public:
  explicit FiniteCheck(bool ends_step = true) : ends_step_(ends_step) {}
  Status AfterInstruction(const RanInstruction& ran) override;
  bool ends_step() const { return ends_step_; }
  std::string node() const;
  std::string op() const;  // of that node
  // Looks for the first one anew.
  void Forget();

 private:
  const bool ends_step_;
  mutable Mutex mutex_;
  std::string node_ GUARDED_BY(mutex_), op_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_FINITE_CHECK_H_
