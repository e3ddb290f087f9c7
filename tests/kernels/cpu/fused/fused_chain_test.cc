// Fused programs that run as chains in registers, against plain loops over the
// elements, one program step at a time.
#include "kernels/cpu/fused/fused_chain.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>

#include "engine/kernel.h"
#include "engine/semantics/fused_program.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {
namespace {

using Ints = std::vector<int64_t>;

// By the formulas, not by engine/semantics/scalar.h.
float Apply(const std::string& f, float a, float b) {
  if (f == "Add") return a + b;
  if (f == "Sub") return a - b;
  if (f == "Mul") return a * b;
  if (f == "Div") return a / b;
  if (f == "Neg") return -a;
  if (f == "Square") return a * a;
  if (f == "SquaredDifference") return (a - b) * (a - b);
  if (f == "ReluGrad") return b > 0 ? a : 0.0f;
  if (f == "Relu") return std::isnan(a) || a > 0 ? a : 0.0f;
  if (std::isnan(a) || std::isnan(b)) return NAN;
  if (f == "Maximum") return a > b ? a : b;
  REQUIRE_EQ(f, "Minimum");
  return a < b ? a : b;
}

struct Case {
  const char* program;
  const char* inputs;  // a letter each: a(rray) or s(calar)
  Ints outputs;        // values
};
const Case kCases[] = {
    {"Mul(0,1); Add(2,1); Mul(3,0); Sub(4,1); Relu(5); Mul(6,1)", "as", {7}},
    {"Sub(1,0); Div(1,2); Neg(3)", "as", {4}},
    {"Sub(0,1); Square(2); Mul(2,3); Add(4,2)", "aa", {5}},  // kept
    {"Add(0,1); Mul(2,2); Sub(3,2)", "aa", {4}},             // twice
    {"Maximum(0,1); Minimum(3,2); SquaredDifference(4,0)", "aaa", {5}},
    {"ReluGrad(0,1); Mul(2,0); Add(3,1)", "aa", {3, 2, 4}},  // several
    {"Add(0,1); Mul(0,1); Sub(2,3)", "aa", {4}},             // a branch
    {"Add(0,1); Add(1,2); Sub(4,3)", "ass", {5}},            // of scalars
};

KernelSpec SpecOf(const Case& c, int64_t n) {
  KernelSpec spec;
  spec.op = "Fused";
  spec.node = "fused";
  for (const char* kind = c.inputs; *kind != 0; ++kind) {
    spec.inputs.push_back({DType::kFloat32, *kind == 'a' ? Shape{n} : Shape{}});
  }
  spec.outputs.assign(c.outputs.size(), {DType::kFloat32, {n}});
  spec.attrs.Set("program", std::string(c.program));
  spec.attrs.Set("outputs", c.outputs);
  spec.attrs.Set("shape", Shape{n});
  return spec;
}

std::vector<Tensor> InputsOf(const KernelSpec& spec) {
  std::vector<Tensor> inputs;
  uint32_t state = 7;
  for (const TensorType& type : spec.inputs) {
    Tensor& x = inputs.emplace_back(type.dtype, type.shape);
    for (float& v : x.values<float>()) {
      state = state * 1664525u + 1013904223u;
      v = state >> 28 == 3 ? NAN
                           : static_cast<float>(state >> 8) * 0x1p-22f - 2;
    }
  }
  return inputs;
}

// The elements of all outputs.
std::vector<std::vector<float>> Expected(const Case& c,
                                         const std::vector<Tensor>& inputs,
                                         int64_t n) {
  const FusedProgram program =
      ParseFusedProgram(c.program, static_cast<int>(inputs.size()))
          .ValueOrThrow();
  std::vector<std::vector<float>> values;
  for (const Tensor& input : inputs) {
    std::vector<float>& value = values.emplace_back(n);
    for (int64_t i = 0; i < n; ++i) {
      value[i] = input.data<float>()[input.elements() == 1 ? 0 : i];
    }
  }
  for (const FusedStep& step : program.steps) {
    std::vector<float> result(n);
    for (int64_t i = 0; i < n; ++i) {
      result[i] = Apply(step.function, values[step.operands[0]][i],
                        values[step.operands.back()][i]);
    }
    values.push_back(std::move(result));
  }
  std::vector<std::vector<float>> outputs;
  for (int64_t output : c.outputs) outputs.push_back(values[output]);
  return outputs;
}

void CheckEqual(const float* y, const std::vector<float>& expected) {
  int64_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool same =
        y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i]));
    wrong += same ? 0 : 1;
  }
  CHECK_EQ(wrong, 0);
}

TEST_CASE("chains compute what their program says") {
  for (const Case& c : kCases) {
    CAPTURE(c.program);
    // Less than a block, whole blocks, some more, and stored past the caches.
    for (int64_t n : {1, 63, 64, 128, 1000, 5 << 20}) {
      if (n > 1000 && c.outputs.size() == 1 && &c != kCases) continue;
      CAPTURE(n);
      const KernelSpec spec = SpecOf(c, n);
      CHECK_FALSE(
          cpu::ChainOf(
              spec,
              ParseFusedProgram(c.program, static_cast<int>(spec.inputs.size()))
                  .ValueOrThrow(),
              Simd().chain)
              .steps.empty());
      const std::vector<Tensor> inputs = InputsOf(spec);
      const auto expected = Expected(c, inputs, n);
      for (const KernelDef* def :
           KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
        CAPTURE(def->provider);
        const KernelPtr kernel = def->make(spec).ValueOrThrow();
        // Apart, and with the first output in the first input's place.
        for (const bool in_place : {false, true}) {
          CAPTURE(in_place);
          std::vector<Tensor> operands, results;
          std::vector<void*> in, out;
          for (const Tensor& input : inputs) {
            in.push_back(operands.emplace_back(input.Clone()).raw());
          }
          for (size_t i = 0; i < c.outputs.size(); ++i) {
            results.push_back(i == 0 && in_place
                                  ? operands[0]
                                  : Tensor(DType::kFloat32, {n}));
            out.push_back(results.back().raw());
          }
          const StepContext step;
          REQUIRE(
              kernel->Run(KernelContext(in.data(), out.data(), nullptr, &step))
                  .ok());
          for (size_t i = 0; i < c.outputs.size(); ++i) {
            CheckEqual(results[i].data<float>(), expected[i]);
          }
        }
      }
    }
  }
}

TEST_CASE("what cannot be a chain is none") {
  auto is_chain = [](const KernelSpec& spec) {
    return !cpu::ChainOf(spec,
                         ParseFusedProgram(spec.attrs.String("program"),
                                           static_cast<int>(spec.inputs.size()))
                             .ValueOrThrow(),
                         Simd().chain)
                .steps.empty();
  };
  CHECK(is_chain(SpecOf({"Relu(0)", "a", {1}}, 100)));
  CHECK_FALSE(is_chain(SpecOf({"Exp(0)", "a", {1}}, 100)));  // not cheap
  KernelSpec row = SpecOf({"Add(0,1)", "aa", {2}}, 100);
  row.attrs.Set("shape", Shape{3, 100});  // repeats both
  CHECK_FALSE(is_chain(row));
  KernelSpec wide = SpecOf({"Relu(0)", "a", {1}}, 100);
  wide.inputs[0].dtype = DType::kFloat64;
  CHECK_FALSE(is_chain(wide));
  // More steps than there is room for.
  std::string longer = "Add(0,0)";
  for (int i = 1; i < 60; ++i) longer += "; Relu(" + std::to_string(i) + ")";
  CHECK_FALSE(is_chain(SpecOf({longer.c_str(), "a", {60}}, 100)));
}

}  // namespace
}  // namespace sluice
