// Runs a kernel on buffers surrounded by guard bytes, so that a write outside
// them, a change of an input or an element left unwritten is found.
#ifndef SLUICE_TESTS_SUPPORT_GUARDED_RUN_H_
#define SLUICE_TESTS_SUPPORT_GUARDED_RUN_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/kernel.h"
#include "engine/tensor.h"

namespace sluice::testing {

class GuardedBuffer {
 public:
  static constexpr size_t kGuard = 64;  // bytes on each side

  GuardedBuffer(size_t bytes, unsigned char fill)
      : bytes_(bytes), memory_(AllocateBuffer(bytes + 2 * kGuard)) {
    std::memset(start() - kGuard, kMark, kGuard);
    std::memset(start(), fill, bytes);
    std::memset(start() + bytes, kMark, kGuard);
  }
  bool empty() const { return bytes_ == 0; }
  char* start() const { return static_cast<char*>(memory_.get()) + kGuard; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (start()[-1 - static_cast<ptrdiff_t>(i)] != kMark ||
          start()[bytes_ + i] != kMark) {
        return false;
      }
    }
    return true;
  }
  Tensor AsTensor(const TensorType& type) const {
    return Tensor(type.dtype, type.shape, memory_, start());
  }
  // The bytes with their guards.
  Tensor Whole() const {
    return Tensor(DType::kUInt8,
                  Shape{static_cast<int64_t>(bytes_ + 2 * kGuard)}, memory_,
                  memory_.get());
  }

 private:
  static constexpr char kMark = 0x5a;
  size_t bytes_;
  std::shared_ptr<void> memory_;
};

// Where the kernel sees the buffers: in the host's memory, or as copies in an
// accelerator's.
class GuardedMemory {
 public:
  explicit GuardedMemory(Accelerator* accelerator) : memory_(accelerator) {}

  // Where the buffer's bytes are; the same for buffers that are one. Null for
  // none, which the undefined-behaviour sanitizer tells kernels from a buffer.
  void* Place(const GuardedBuffer& buffer) {
    if (!accelerated()) return buffer.empty() ? nullptr : buffer.start();
    Tensor& copy = copies_[buffer.start()].there;
    if (copy.bytes() == 0) {
      copies_[buffer.start()].here = buffer.Whole();
      copy = memory_.Upload(buffer.Whole()).ValueOrThrow();
    }
    return static_cast<char*>(copy.raw()) + GuardedBuffer::kGuard;
  }
  // Waits for the kernel and brings back what it left.
  void BringBack() {
    for (auto& [start, copies] : copies_) {
      const Tensor left = memory_.Download(copies.there).ValueOrThrow();
      std::memcpy(copies.here.raw(), left.raw(), left.bytes());
    }
  }

 private:
  struct Copies {
    Tensor here, there;
  };
  bool accelerated() const { return memory_.accelerator() != nullptr; }

  DeviceMemory memory_;
  std::map<char*, Copies> copies_;
};

struct GuardedRunOptions {
  int in_place = -1;          // the input whose buffer is output 0
  unsigned char fill = 0xcd;  // what outputs hold before
  StepContext step = {};
  Accelerator* accelerator = nullptr;  // that the kernel runs on
};

// What a run left behind: the outputs, then the updated inputs.
struct GuardedRunResult {
  std::string fault;     // empty if there was none
  bool refused = false;  // the fault is an index or label out of range
  std::vector<Tensor> tensors;
};

inline GuardedRunResult GuardedRun(Kernel& kernel, const KernelSpec& spec,
                                   const std::vector<Tensor>& inputs,
                                   int mutates,
                                   const GuardedRunOptions& options = {}) {
  GuardedRunResult result;
  GuardedMemory memory(options.accelerator);
  std::vector<GuardedBuffer> in, out;
  std::vector<void*> in_data, out_data;
  for (const Tensor& input : inputs) {
    in.emplace_back(input.bytes(), 0);
    if (input.bytes() > 0) {
      std::memcpy(in.back().start(), input.raw(), input.bytes());
    }
    in_data.push_back(memory.Place(in.back()));
  }
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const int shared = i > 0 ? -1 : mutates > 0 ? 0 : options.in_place;
    out.push_back(shared >= 0
                      ? in[shared]
                      : GuardedBuffer(spec.outputs[i].bytes(), options.fill));
    out_data.push_back(memory.Place(out.back()));
  }
  const GuardedBuffer workspace(kernel.workspace_bytes(), options.fill);
  const Status status = kernel.Run(KernelContext(
      in_data.data(), out_data.data(), memory.Place(workspace), &options.step));
  if (!status.ok()) result.fault = status.message();
  result.refused = status.code() == Code::kOutOfRange;
  memory.BringBack();
  if (!workspace.intact()) result.fault = "wrote outside its workspace";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!in[i].intact()) result.fault = "wrote outside an input";
    const bool may_change = static_cast<int>(i) < mutates ||
                            static_cast<int>(i) == options.in_place;
    if (!may_change && inputs[i].bytes() > 0 &&
        std::memcmp(in[i].start(), inputs[i].raw(), inputs[i].bytes()) != 0) {
      result.fault = "changed input " + std::to_string(i);
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].intact()) {
      result.fault = "wrote outside output " + std::to_string(i) +
                     ", by its shape " + spec.outputs[i].ToString();
    }
    result.tensors.push_back(out[i].AsTensor(spec.outputs[i]));
  }
  for (int i = 0; i < mutates; ++i) {
    result.tensors.push_back(in[i].AsTensor(spec.inputs[i]));
  }
  return result;
}

// How far floats may be from what is wanted: `relative` times the largest
// finite magnitude wanted in their tensor or, with `each`, times that of each;
// or `absolute`, where that is more.
struct Allowance {
  double relative = 0;
  double absolute = 0;
  bool each = false;
};

// Empty if the tensors agree, one for one: floats within the allowance,
// integers and bools exactly, NaN with NaN. dtypes may differ.
inline std::string Difference(const std::vector<Tensor>& got,
                              const std::vector<Tensor>& wanted,
                              const Allowance& allowance) {
  if (got.size() != wanted.size()) {
    return fmt::format("{} tensors, wanted {}", got.size(), wanted.size());
  }
  for (size_t k = 0; k < got.size(); ++k) {
    const Tensor& a = got[k];
    const Tensor& b = wanted[k];
    if (a.shape() != b.shape()) return "shapes differ";
    double largest = 0;
    for (int64_t i = 0; i < b.elements(); ++i) {
      if (std::isfinite(b.At(i)))
        largest = std::max(largest, std::abs(b.At(i)));
    }
    for (int64_t i = 0; i < a.elements(); ++i) {
      const double x = a.At(i), y = b.At(i);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const double scale = allowance.each ? std::abs(y) : largest;
      const double allowed =
          std::max(allowance.relative * scale, allowance.absolute);
      const bool may_differ = IsFloating(a.dtype()) && std::isfinite(y);
      if (!may_differ || !(std::abs(x - y) <= allowed)) {
        return fmt::format("output {}[{}] is {}, wanted {}", k, i, x, y);
      }
    }
  }
  return "";
}

inline bool SameBits(const std::vector<Tensor>& a,
                     const std::vector<Tensor>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const Tensor& x, const Tensor& y) { return x.BitEqual(y); });
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_GUARDED_RUN_H_
