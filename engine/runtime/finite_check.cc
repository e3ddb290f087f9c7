#include "engine/runtime/finite_check.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/dtype.h"

namespace sluice {

bool AllFinite(DType dtype, const void* data, int64_t n) {
  if (!IsFloating(dtype)) return true;
  return DispatchFloating(dtype, [&]<typename T>(TypeTag<T>) {
    const T* values = static_cast<const T*>(data);
    for (int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(static_cast<ComputeType<T>>(values[i]))) return false;
    }
    return true;
  });
}

bool AllFinite(const Tensor& tensor) {
  return AllFinite(tensor.dtype(), tensor.raw(), tensor.elements());
}

Status FiniteCheck::AfterInstruction(const RanInstruction& ran) {
  const InstructionLabel& label = ran.label;
  for (size_t i = 0; i < label.outputs.size(); ++i) {
    const TensorType& type = label.outputs[i];
    if (AllFinite(type.dtype, ran.outputs[i], type.shape.elements())) continue;
    MutexLock lock(mutex_);
    if (node_.empty()) {
      node_ = label.node;
      op_ = label.op;
    }
    if (!ends_step_) return {};
    return OutOfRange(
        fmt::format("{} '{}': output {} {} holds a NaN or an infinity",
                    label.op, label.node, i, type.ToString()));
  }
  return {};
}

std::string FiniteCheck::node() const {
  MutexLock lock(mutex_);
  return node_;
}

void FiniteCheck::Forget() {
  MutexLock lock(mutex_);
  node_.clear();
  op_.clear();
}

std::string FiniteCheck::op() const {
  MutexLock lock(mutex_);
  return op_;
}

}  // namespace sluice
