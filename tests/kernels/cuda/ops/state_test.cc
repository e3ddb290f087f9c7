// Writes to variables in CUDA, emulated: single writes, and steps that are
// captured and replayed.
#include "kernels/cuda/ops/state.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/kernels/cuda/emulation/device_run.h"
#include "tests/kernels/cuda/emulation/gpu.h"

namespace sluice::cuda {
namespace {

using testing::OnGpu;

TEST_CASE("any length and alignment; nothing is written unless it applies") {
  for (int64_t n : {0, 1, 7, 64, 8195}) {
    for (size_t skip : {0, 2}) {
      for (bool apply : {false, true}) {
        const Tensor old = RandomTensor(DType::kFloat16, {n}, -9, 9, 1);
        const Tensor value = RandomTensor(DType::kFloat16, {n}, -9, 9, 2);
        const DeviceBuffer condition(Tensor::Scalar(apply)), from(value);
        const auto check = [&](const DeviceBuffer& variable, auto wanted) {
          const Tensor got = variable.Read(DType::kFloat16, {n});
          for (int64_t i = 0; i < n; ++i) {
            CHECK(got.At(i) == (apply ? wanted(i) : old.At(i)));
          }
        };
        const DeviceBuffer assigned(old, skip), added(old, skip),
            subtracted(old, skip);
        CHECK(AssignBytes(condition.as<bool>(), from.get(), assigned.get(),
                          value.bytes(), nullptr)
                  .ok());
        check(assigned, [&](int64_t i) { return value.At(i); });
        const AccumulateLauncher launch = FindAccumulate(DType::kFloat16);
        for (int sign : {1, -1}) {
          const DeviceBuffer& variable = sign > 0 ? added : subtracted;
          CHECK(launch(condition.as<bool>(), sign, from.get(), variable.get(),
                       n, nullptr)
                    .ok());
          check(variable, [&](int64_t i) {
            return static_cast<double>(static_cast<float>(
                Half(static_cast<float>(old.At(i) + sign * value.At(i)))));
          });
        }
      }
    }
  }
}

TEST_CASE("a list of writes is one launch") {
  const std::vector<int64_t> sizes = {1, 0, 8195, 64, 40};  // bytes
  std::vector<TensorType> types;
  for (int64_t n : sizes) types.push_back({DType::kUInt8, {n}});
  ArrayList list = ListsOf(types).front();
  for (bool apply : {false, true}) {
    for (size_t skip : {0, 3}) {
      std::vector<Tensor> old, values;
      for (int64_t n : sizes) {
        old.push_back(RandomTensor(DType::kUInt8, {n}, 0, 99, 1));
        values.push_back(RandomTensor(DType::kUInt8, {n}, 100, 199, 2));
      }
      const auto got = InEveryOrder([&] {
        std::vector<DeviceBuffer> variables, from;
        for (size_t k = 0; k < sizes.size(); ++k) {
          list.at[k].to = variables.emplace_back(old[k], skip).get();
          list.at[k].from = from.emplace_back(values[k]).get();
        }
        const DeviceBuffer condition(Tensor::Scalar(apply));
        const int64_t before = emulation::Launches();
        CHECK(AssignListed(condition.as<bool>(), list, nullptr).ok());
        CHECK(emulation::Launches() == before + 1);
        std::vector<Tensor> results;
        for (size_t k = 0; k < sizes.size(); ++k) {
          results.push_back(variables[k].Read(DType::kUInt8, {sizes[k]}));
        }
        return results;
      });
      for (size_t k = 0; k < sizes.size(); ++k) {
        CHECK(got[k].BitEqual(apply ? values[k] : old[k]));
      }
    }
  }
}

TEST_CASE("a variable may be assigned to itself") {
  const DeviceBuffer variable(Tensor::Full(DType::kFloat32, {3}, 2));
  CHECK(AssignBytes(nullptr, variable.get(), variable.get(), 12, nullptr).ok());
  CHECK(variable.Read(DType::kFloat32, {3}).At(2) == 2);
}

// The same feeds to a model on the GPU and on the CPU.
struct Trained {
  explicit Trained(const SessionOptions& options)
      : gradient(graph.Placeholder("gradient", DType::kFloat32, {5, 3})),
        apply(graph.Placeholder("apply", DType::kBool, {})),
        w(graph.Variable("w",
                         CopyOf(Tensor::Full(DType::kFloat32, {5, 3}, 1)))),
        velocity(graph.Variable(
            "velocity", CopyOf(Tensor::Zeros(DType::kFloat32, {5, 3})))),
        steps(graph.Variable("steps", CopyOf(Tensor::Scalar<int64_t>(0)))),
        large(graph.Placeholder("large", DType::kFloat32, {1 << 12})) {
    const Output descent =
        ApplyMomentum(w, velocity, 0.1, Exp(gradient), {.nesterov = true});
    MakeConditional(descent, apply);
    update = descent;
    count = AssignAdd(steps, 1);
    other = Exp(Exp(large));
    session = std::make_unique<Session>(graph, options);
    session->Initialize();
    step =
        session->Prepare({{gradient, {5, 3}}, {apply, {}}}, {count}, {update});
  }
  void Run(float value, bool applies) {
    std::vector<Tensor> got = step.MakeFetches();
    step.Run(std::vector<Tensor>{Tensor::Full(DType::kFloat32, {5, 3}, value),
                                 Tensor::Scalar(applies)},
             got);
  }

  Graph graph;
  Output gradient, apply, w, velocity, steps, large, update, count, other;
  std::unique_ptr<Session> session;
  PreparedStep step;
};

TEST_CASE("replayed steps update variables, where they apply") {
  Trained gpu(OnGpu()), cpu({});
  const auto compare = [&] {
    CHECK(gpu.session->Read(gpu.steps).IntAt(0) ==
          cpu.session->Read(cpu.steps).IntAt(0));
    const Tensor got = gpu.session->Read(gpu.w);
    const Tensor wanted = cpu.session->Read(cpu.w);
    for (int64_t i = 0; i < got.elements(); ++i) {
      CHECK(got.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-6));
    }
  };
  const auto run = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      for (Trained* model : {&gpu, &cpu}) {
        model->Run(0.1f * static_cast<float>(i), i % 3 != 1);
      }
    }
  };
  run(0, 6);
  CHECK(gpu.step.info().why_not_captured.empty());
  compare();
  // A larger step makes the arena grow: the gradient is elsewhere now.
  gpu.session->Run({{gpu.large, Tensor::Zeros(DType::kFloat32, {1 << 12})}},
                   gpu.other);
  run(6, 12);
  compare();
}

}  // namespace
}  // namespace sluice::cuda
