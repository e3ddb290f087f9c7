// The CUDA optimizer steps over lists of variables, emulated, against the
// CPU's.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/ops/optimizer.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

using testing::DeviceBuffer;
using testing::Difference;
using testing::InEveryOrder;
using testing::RandomTensor;

struct Rule {
  std::string op;
  int slots;
  bool counts_steps;
};
const Rule kRules[] = {
    {"ApplySgd", 0, false},     {"ApplyMomentum", 1, false},
    {"ApplyRmsProp", 1, false}, {"ApplyRmsPropMomentum", 2, false},
    {"ApplyAdagrad", 1, false}, {"ApplyAdam", 2, true},
    {"ApplyAdamW", 2, true}};

OptimizerLauncher LauncherOf(const std::string& op, DType dtype) {
  for (const OptimizerRule& rule : OptimizerRules()) {
    if (rule.op == op) return rule.launcher(dtype);
  }
  return nullptr;
}

// Less than a pack, a whole number of packs, more than a chunk; none.
const std::vector<int64_t> kSizes = {3, 4100, 0, 64, 9001, 1};

struct Case {
  Rule rule;
  DType dtype = DType::kFloat32;
  OptimizerParams params;
  bool apply = true;
  size_t skip = 0;
  float gradient_scale = 1;
  std::vector<DType> halves = {};  // of gradients, in turn after one in dtype
  // Of some parameters of all variables but the first.
  bool infinite = false;

  DType GradientType(size_t variable) const {
    const size_t k = variable % (halves.size() + 1);
    return k == 0 ? dtype : halves[k - 1];
  }

  Attributes Attrs() const {
    Attributes attrs;
    attrs.Set("variables", static_cast<int64_t>(kSizes.size()));
    attrs.Set("gradient_decay", params.gradient_decay);
    attrs.Set("decayed", params.decayed);
    attrs.Set("momentum", params.momentum);
    attrs.Set("nesterov", params.nesterov);
    attrs.Set("decay", params.decay);
    attrs.Set("beta1", params.beta1);
    attrs.Set("beta2", params.beta2);
    attrs.Set("epsilon", params.epsilon);
    if (rule.op == "ApplyAdamW") attrs.Set("weight_decay", params.weight_decay);
    return attrs;
  }
};

// The tensors by kind: variables, slots, gradients; slots are positive, as
// means of squares are.
std::vector<Tensor> Operands(const Case& c) {
  std::vector<Tensor> all;
  for (int kind = 0; kind < c.rule.slots + 2; ++kind) {
    const bool slot = kind > 0 && kind <= c.rule.slots;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const DType dtype = kind > c.rule.slots ? c.GradientType(i) : c.dtype;
      all.push_back(RandomTensor(dtype, {kSizes[i]}, slot ? 0.5 : -1, 1,
                                 static_cast<unsigned>(all.size() + 1)));
      if (!c.infinite || kind > 0 || i == 0 || kSizes[i] == 0) continue;
      const float infinity = std::numeric_limits<float>::infinity();
      all.back().data<float>()[0] = i % 2 == 0 ? infinity : -infinity;
    }
  }
  return all;
}

constexpr float kRate = 0.05f;
constexpr int64_t kStep = 3;

// The variables and slots afterwards.
std::vector<Tensor> OnCpu(const Case& c) {
  std::vector<Tensor> inputs = Operands(c);
  inputs.push_back(Tensor::Scalar(kRate));
  if (c.rule.counts_steps) inputs.push_back(Tensor::Scalar(kStep));
  inputs.push_back(Tensor::Scalar(c.gradient_scale));
  inputs.push_back(Tensor::Scalar(c.apply));
  KernelSpec spec{.op = c.rule.op + "List", .attrs = c.Attrs()};
  for (const Tensor& t : inputs) spec.inputs.push_back({t.dtype(), t.shape()});
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
  REQUIRE(!all.empty());
  const KernelPtr kernel = all.back()->make(spec).ValueOrThrow();
  const int mutated = (1 + c.rule.slots) * static_cast<int>(kSizes.size());
  const auto run = testing::GuardedRun(*kernel, spec, inputs, mutated);
  CHECK_MESSAGE(run.fault.empty(), run.fault);
  return run.tensors;
}

std::vector<Tensor> InCuda(const Case& c) {
  const std::vector<Tensor> operands = Operands(c);
  const size_t count = kSizes.size();
  return InEveryOrder([&] {
    std::vector<DeviceBuffer> buffers;
    for (const Tensor& t : operands) buffers.emplace_back(t, c.skip);
    std::vector<OptimizerTensor> tensors(count);
    for (size_t i = 0; i < count; ++i) {
      tensors[i].variable = buffers[i].get();
      for (int s = 0; s < c.rule.slots; ++s) {
        tensors[i].slots[s] = buffers[(1 + s) * count + i].get();
      }
      tensors[i].gradient = buffers[(1 + c.rule.slots) * count + i].get();
      tensors[i].gradient_dtype = c.GradientType(i);
      tensors[i].elements = kSizes[i];
    }
    const int64_t chunks = PlanOptimizer(tensors);
    const OptimizerList list = {
        tensors.data(),
        static_cast<int>(count),
        chunks,
        &kRate,
        c.rule.counts_steps ? &kStep : nullptr,
        &c.apply,
        c.gradient_scale == 1 ? nullptr : &c.gradient_scale};
    const int64_t before = emulation::Launches();
    CHECK(LauncherOf(c.rule.op, c.dtype)(list, c.params, nullptr).ok());
    CHECK(emulation::Launches() == before + 1);
    std::vector<Tensor> results;
    for (size_t i = 0; i < (1 + c.rule.slots) * count; ++i) {
      results.push_back(buffers[i].Read(c.dtype, operands[i].shape()));
    }
    return results;
  });
}

void CheckStep(const Case& c) {
  const std::vector<Tensor> wanted = OnCpu(c), got = InCuda(c);
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    // The same few operations on both sides, contracted or not.
    const std::string difference = Difference(got[i], wanted[i], 8, 1);
    CHECK_MESSAGE(difference.empty(), c.rule.op, " tensor ", i, ", ",
                  difference);
  }
}

const OptimizerParams kParams = {.momentum = 0.9,
                                 .decay = 0.8,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .epsilon = 1e-3};

TEST_CASE("every rule, float32 and float64, one launch for all variables") {
  for (const Rule& rule : kRules) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      CheckStep({.rule = rule, .dtype = dtype, .params = kParams});
    }
  }
}

TEST_CASE("Nesterov's momentum, decay of some gradients, decay of weights") {
  OptimizerParams params = kParams;
  params.nesterov = true;
  params.gradient_decay = 0.1;
  params.decayed = 2;
  CheckStep({.rule = kRules[1], .params = params});
  params.weight_decay = 0.2;
  CheckStep({.rule = kRules[6], .params = params});
}

// A parameter that is -inf keeps a class out of a softmax.
TEST_CASE("infinite parameters stay, where the gradient does not decay") {
  for (const Rule& rule : kRules) {
    for (const int64_t decayed : {0, 1}) {
      Case c = {.rule = rule, .params = kParams, .infinite = true};
      c.params.gradient_decay = 0.1 * static_cast<double>(decayed);
      c.params.decayed = decayed;
      const std::vector<Tensor> before = Operands(c), got = InCuda(c);
      const std::vector<Tensor> wanted = OnCpu(c);
      for (size_t i = 1; i < kSizes.size(); ++i) {
        if (kSizes[i] == 0) continue;
        CAPTURE(rule.op);
        CHECK(got[i].At(0) == before[i].At(0));
        CHECK(wanted[i].At(0) == before[i].At(0));
      }
    }
  }
}

TEST_CASE("gradients times a scale, before their decay") {
  OptimizerParams params = kParams;
  params.gradient_decay = 0.1;
  params.decayed = 2;
  for (const Rule& rule : kRules) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      CheckStep({.rule = rule,
                 .dtype = dtype,
                 .params = params,
                 .gradient_scale = 0.3f});
    }
  }
}

TEST_CASE("gradients that are half, float32 and float64 beside each other") {
  const std::vector<DType> halves = {DType::kFloat16, DType::kBFloat16};
  for (const Rule& rule : kRules) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      CheckStep({.rule = rule,
                 .dtype = dtype,
                 .params = kParams,
                 .gradient_scale = 0.3f,
                 .halves = halves});
    }
  }
  CheckStep(
      {.rule = kRules[1], .params = kParams, .skip = 4, .halves = halves});
}

TEST_CASE("unaligned variables") {
  CheckStep({.rule = kRules[5], .params = kParams, .skip = 4});
}

TEST_CASE("a step that does not apply changes nothing") {
  const Case c = {.rule = kRules[5], .params = kParams, .apply = false};
  const std::vector<Tensor> before = Operands(c), after = InCuda(c);
  for (size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].BitEqual(before[i]));
  }
}

TEST_CASE("no variables, no launch; other ops and dtypes have no kernel") {
  CHECK(PlanOptimizer({}) == 0);
  CHECK(LauncherOf("ApplySgd", DType::kFloat32)({}, {}, nullptr).ok());
  CHECK((LauncherOf("ApplySgd", DType::kFloat16) == nullptr));
  CHECK(OptimizerRules().size() == std::size(kRules));
}

}  // namespace
}  // namespace sluice::cuda
