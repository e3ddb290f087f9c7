// What the tests of CUDA kernels share: operands in "device" memory, and the
// results of the CPU's kernels on the same operands.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_RUN_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_RUN_H_

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "engine/tensor.h"
#include "graph/op.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/support/kernel_run.h"

namespace sluice::testing {

// Memory of exactly `bytes`, so that the address sanitizer sees what a kernel
// reads or writes beyond, `skip` bytes past a 16-byte boundary. Holds NaN in
// every float type at first. Copies share the memory.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes, size_t skip = 0)
      : memory_(static_cast<char*>(
                    ::operator new(skip + bytes, std::align_val_t(16))),
                [](char* p) { ::operator delete(p, std::align_val_t(16)); }),
        start_(memory_.get() + skip) {
    std::memset(memory_.get(), cuda::emulation::kPoison, skip + bytes);
  }
  explicit DeviceBuffer(const Tensor& tensor, size_t skip = 0)
      : DeviceBuffer(tensor.bytes(), skip) {
    if (tensor.bytes() > 0) std::memcpy(start_, tensor.raw(), tensor.bytes());
  }
  void* get() const { return start_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(get());
  }
  // A copy of what it holds.
  Tensor Read(DType dtype, const Shape& shape) const {
    Tensor copy(dtype, shape);
    if (copy.bytes() > 0) std::memcpy(copy.raw(), start_, copy.bytes());
    return copy;
  }

 private:
  std::shared_ptr<char> memory_;
  char* start_;
};

// Uniform in [lo, hi], rounded to the dtype. The same in every run.
inline Tensor RandomTensor(DType dtype, const Shape& shape, double lo,
                           double hi, unsigned seed = 1) {
  std::mt19937_64 random(seed);  // NOLINT: the same in every run
  Tensor wide(DType::kFloat64, shape);
  for (double& v : wide.values<double>()) {
    v = std::uniform_real_distribution(lo, hi)(random);
  }
  return wide.Cast(dtype);
}

// What the reference kernel of the CPU's table computes.
inline std::vector<Tensor> CpuResults(const std::string& op,
                                      const Attributes& attrs,
                                      const std::vector<Tensor>& inputs,
                                      std::vector<TensorType> outputs) {
  const OpDef& def = OpTable::Global().Get(op);
  KernelSpec spec{.op = op,
                  .scalar = std::string(def.ScalarFunction(attrs)),
                  .conv = def.conv,
                  .node = op,
                  .origin = op,
                  .attrs = attrs};
  for (const Tensor& t : inputs) spec.inputs.push_back({t.dtype(), t.shape()});
  spec.outputs = std::move(outputs);
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
  REQUIRE_MESSAGE(!all.empty(), op);
  return RunKernel(*all.back(), spec, inputs);
}

// The distance from a dtype's 1 to the next above.
inline double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

// Where the two differ by more than `epsilons` of the dtype relative to
// max(|wanted|, scale), the first such place; NaN equals NaN. Integers and bool
// must be equal. Empty if nowhere.
inline std::string Difference(const Tensor& got, const Tensor& wanted,
                              double epsilons, double scale = 0) {
  const double unit = EpsilonOf(wanted.dtype());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = got.At(i), b = wanted.At(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double bound = IsFloating(wanted.dtype())
                             ? epsilons * unit * std::max(std::abs(b), scale)
                             : 0;
    if (!(std::abs(a - b) <= bound)) {
      return fmt::format("{} at {}: {} for {}", NameOf(wanted.dtype()), i, a,
                         b);
    }
  }
  return "";
}

// Calls run() in every order of threads with as many blocks as asked for, then
// reversed with two: there a warp that is done with a step of the grid goes on
// to the next, ahead of the first. It returns the results, which must be the
// same bits each time, and are returned.
template <typename Run>
std::vector<Tensor> InEveryOrder(Run run) {
  std::vector<Tensor> first;
  for (int i = 0; i < 4; ++i) {
    cuda::emulation::SetOrder(cuda::emulation::kOrders[i < 3 ? i : 1]);
    cuda::emulation::SetMostBlocks(i < 3 ? 0 : 2);
    const int64_t before = cuda::emulation::Launches();
    std::vector<Tensor> results = run();
    CHECK(cuda::emulation::Launches() > before);
    if (first.empty()) {
      first = std::move(results);
      continue;
    }
    for (size_t k = 0; k < first.size(); ++k) {
      CHECK_MESSAGE(results[k].BitEqual(first[k]), "result ", k,
                    " depends on the order of threads or blocks");
    }
  }
  cuda::emulation::SetMostBlocks(0);
  return first;
}

}  // namespace sluice::testing

// For tests, which are in this namespace.
namespace sluice::cuda {
using testing::CpuResults;
using testing::DeviceBuffer;
using testing::Difference;
using testing::InEveryOrder;
using testing::RandomTensor;

inline constexpr DType kFloatTypes[] = {DType::kFloat32, DType::kFloat64,
                                        DType::kFloat16, DType::kBFloat16};
}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_RUN_H_
