// The bytes that CUDA kernels move, counted in the emulation, against those of
// their operands. Equal, not at most: what goes past the counted accessors
// would be missing.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/ops/conv/pool.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"
#include "kernels/cuda/ops/norm/batch_norm.h"
#include "kernels/cuda/ops/optimizer.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

using emulation::Traffic;

// An operand, and how often a kernel is to read and to write all of it.
struct Operand {
  std::string name;
  DeviceBuffer buffer;
  size_t bytes;
  int reads, writes;
};

class Operands {
 public:
  void* Add(const std::string& name, size_t bytes, int reads, int writes) {
    operands_.push_back({name, DeviceBuffer(bytes), bytes, reads, writes});
    return operands_.back().buffer.get();
  }
  void* Add(const std::string& name, const Tensor& tensor, int reads,
            int writes) {
    operands_.push_back(
        {name, DeviceBuffer(tensor), tensor.bytes(), reads, writes});
    return operands_.back().buffer.get();
  }

  // What run() moves of each.
  void Check(const std::string& what, const std::function<Status()>& run) {
    std::vector<std::unique_ptr<Traffic>> traffic;
    for (const Operand& o : operands_) {
      traffic.push_back(std::make_unique<Traffic>(o.buffer.get(), o.bytes));
    }
    CHECK(run().ok());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Operand& o = operands_[i];
      const auto bytes = static_cast<int64_t>(o.bytes);
      CHECK_MESSAGE(traffic[i]->loaded == o.reads * bytes, what, " reads ",
                    o.name, " ", traffic[i]->loaded, " of ", bytes, " bytes");
      CHECK_MESSAGE(traffic[i]->stored == o.writes * bytes, what, " writes ",
                    o.name, " ", traffic[i]->stored, " of ", bytes, " bytes");
    }
  }

 private:
  std::vector<Operand> operands_;
};

struct Columns {
  DType dtype;
  int64_t rows, channels;
  BatchNormShape shape() const { return {rows, channels, 1e-3, 0.9}; }
  size_t image() const { return rows * channels * SizeOf(dtype); }
  size_t vector() const { return channels * SizeOf(ComputeDType(dtype)); }
  size_t mask() const { return rows * channels / 8; }
};
// Several segments, the last of which is not whole; and channels that are no
// whole packs.
const Columns kColumns[] = {
    {DType::kFloat32, 1100, 16}, {DType::kFloat16, 1100, 24},
    {DType::kBFloat16, 70, 136}, {DType::kFloat64, 70, 8},
    {DType::kFloat32, 600, 6},   {DType::kFloat16, 48, 7}};

void CheckForward(const Columns& c, bool add, bool relu) {
  Operands all;
  BatchNormOperands o;
  o.x = all.Add("x", c.image(), 2, 0);
  o.y = all.Add("y", c.image(), 0, 1);
  if (add) o.addend = all.Add("addend", c.image(), 1, 0);
  if (relu) o.mask = static_cast<uint8_t*>(all.Add("mask", c.mask(), 0, 1));
  o.scale = all.Add("scale", c.vector(), 1, 0);
  o.running_mean = all.Add("running_mean", c.vector(), 1, 0);
  o.running_variance = all.Add("running_variance", c.vector(), 1, 0);
  o.inv_std = all.Add("inv_std", c.vector(), 0, 1);
  o.new_mean = all.Add("new_mean", c.vector(), 0, 1);
  o.new_variance = all.Add("new_variance", c.vector(), 0, 1);
  // Read again with every few rows, from a cache.
  const DeviceBuffer offset(c.vector()), mean(c.vector());
  o.offset = offset.get();
  o.mean = mean.get();
  const DeviceBuffer workspace(BatchNormWorkspace(c.shape(), c.dtype));
  o.workspace = workspace.get();
  all.Check("BatchNorm",
            [&] { return FindBatchNorm(c.dtype)(c.shape(), o, nullptr); });
}

TEST_CASE("batch normalisation reads x twice and writes once") {
  for (const Columns& c : kColumns) {
    for (int k = 0; k < 4; ++k) CheckForward(c, (k & 1) != 0, (k & 2) != 0);
  }
}

// g: the gradient of an addend is written, and read in place of dy and dy2.
void CheckBackward(const Columns& c, bool relu, bool two, bool g) {
  const bool kept = g || two;
  Operands all;
  BatchNormGradOperands o;
  o.x = all.Add("x", c.image(), 2, 0);
  o.dy = all.Add("dy", c.image(), kept ? 1 : 2, 0);
  if (two) o.dy2 = all.Add("dy2", c.image(), 1, 0);
  // A byte is read for every pack of its elements, in the first pass.
  const int packs = c.channels % 8 == 0
                        ? std::max(1, static_cast<int>(SizeOf(c.dtype)) / 2)
                        : 0;
  const DeviceBuffer any_mask(c.mask() + 1);
  if (relu) {
    o.mask = packs > 0 ? static_cast<const uint8_t*>(all.Add(
                             "mask", c.mask(), packs + (kept ? 0 : 1), 0))
                       : any_mask.as<uint8_t>();
  }
  o.dx = all.Add("dx", c.image(), kept && !g ? 1 : 0, kept && !g ? 2 : 1);
  if (g) o.g = all.Add("g", c.image(), 1, 1);
  o.scale = all.Add("scale", c.vector(), 1, 0);
  o.inv_std = all.Add("inv_std", c.vector(), 1, 0);
  o.dscale = all.Add("dscale", c.vector(), 0, 1);
  o.doffset = all.Add("doffset", c.vector(), 0, 1);
  const DeviceBuffer mean(c.vector());
  o.mean = mean.get();
  const DeviceBuffer workspace(BatchNormWorkspace(c.shape(), c.dtype));
  o.workspace = workspace.get();
  all.Check("BatchNormGrad",
            [&] { return FindBatchNormGrad(c.dtype)(c.shape(), o, nullptr); });
}

TEST_CASE("its gradient reads x twice, a sum of gradients once, writes once") {
  for (const Columns& c : kColumns) {
    for (int k = 0; k < 8; ++k) {
      CheckBackward(c, (k & 1) != 0, (k & 2) != 0, (k & 4) != 0);
    }
  }
}

TEST_CASE("elementwise kernels read and write every element once") {
  for (DType dtype : kFloatTypes) {
    for (int64_t n : {1, 64, 1000, 5003}) {
      const size_t bytes = n * SizeOf(dtype);
      {
        Operands all;
        const void* x = all.Add("x", bytes, 1, 0);
        void* y = all.Add("y", bytes, 0, 1);
        all.Check("Relu", [&] {
          return FindUnary("Relu", dtype)(x, y, n, {}, nullptr);
        });
      }
      {
        Operands all;
        const void* x = all.Add("x", bytes, 1, 0);
        void* y = all.Add("y", n * sizeof(float), 0, 1);
        all.Check("Cast", [&] {
          return FindCast(dtype, DType::kFloat32)(x, y, n, {}, nullptr);
        });
      }
      Operands all;
      const void* a = all.Add("a", bytes, 1, 0);
      const void* b = all.Add("b", bytes, 1, 0);
      void* y = all.Add("y", bytes, 0, 1);
      const Shape shapes[] = {{n}, {n}};
      all.Check("Add", [&] {
        return FindBinary("Add", dtype)(a, b, y, BroadcastOf({n}, shapes), {},
                                        nullptr);
      });
    }
  }
}

TEST_CASE("optimizers read and write variables and slots once") {
  for (const OptimizerRule& rule : OptimizerRules()) {
    for (DType gradient : {DType::kFloat32, DType::kFloat16}) {
      Operands all;
      std::vector<OptimizerTensor> tensors;
      for (int64_t n : {3, 4100, 9001}) {
        OptimizerTensor t;
        const size_t bytes = n * sizeof(float);
        t.variable = all.Add("variable", bytes, 1, 1);
        for (int s = 0; s < rule.slots; ++s) {
          t.slots[s] = all.Add("slot", bytes, 1, 1);
        }
        t.gradient = all.Add("gradient", n * SizeOf(gradient), 1, 0);
        t.gradient_dtype = gradient;
        t.elements = n;
        tensors.push_back(t);
      }
      const int64_t chunks = PlanOptimizer(tensors);
      const float rate = 0.1f;
      const int64_t step = 3;
      const OptimizerList list = {
          tensors.data(), static_cast<int>(tensors.size()),    chunks,
          &rate,          rule.counts_steps ? &step : nullptr, nullptr,
          nullptr};
      all.Check(rule.op, [&] { return rule.f32(list, {}, nullptr); });
    }
  }
}

TEST_CASE("windows that do not overlap are read once, and so are gradients") {
  const WindowDim dim = {.input = 8, .output = 4, .window = 2, .stride = 2};
  for (DType dtype : kFloatTypes) {
    for (int64_t channels : {5, 16}) {
      const PoolShape shape = {2, channels, dim, dim};
      const Tensor image = RandomTensor(dtype, {2, 8, 8, channels}, -1, 1);
      const size_t pooled = image.bytes() / 4;
      for (const char* op : {"MaxPool", "AvgPool"}) {
        Operands all;
        const void* x = all.Add("x", image, 1, 0);
        void* y = all.Add("y", pooled, 0, 1);
        all.Check(op, [&] {
          return FindPool(op, dtype)(shape, x, nullptr, nullptr, y, nullptr);
        });
      }
      {
        Operands all;
        const void* x = all.Add("x", image, 1, 0);
        void* y = all.Add("y", pooled, 0, 1);
        void* argmax = all.Add("argmax", pooled / SizeOf(dtype), 0, 1);
        all.Check("MaxPoolWithArgmax", [&] {
          return FindMaxPoolWithArgmax(dtype)(
              shape, x, y, static_cast<uint8_t*>(argmax), nullptr);
        });
      }
      // What is of a window goes to each of its four pixels.
      {
        Operands all;
        const void* dy = all.Add("dy", pooled, 4, 0);
        const void* argmax = all.Add("argmax", pooled / SizeOf(dtype), 4, 0);
        void* dx = all.Add("dx", image.bytes(), 0, 1);
        all.Check("MaxPoolGradWithArgmax", [&] {
          return FindPool("MaxPoolGradWithArgmax", dtype)(shape, dy, argmax,
                                                          nullptr, dx, nullptr);
        });
      }
      Operands all;
      const void* dy = all.Add("dy", pooled, 4, 0);
      void* dx = all.Add("dx", image.bytes(), 0, 1);
      all.Check("AvgPoolGrad", [&] {
        return FindPool("AvgPoolGrad", dtype)(shape, dy, nullptr, nullptr, dx,
                                              nullptr);
      });
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
