// Workers that compute on a GPU each, and meet on the host.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "tests/dist/collective/ranks.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {
namespace {

Task OnDevices(const char* type) {
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(2)};
  task.options = [type](int rank) {
    TrainingOptions options;
    options.session.devices = {type + std::to_string(rank)};
    return options;
  };
  return task;
}

TEST_CASE("workers on GPUs train what workers on CPUs train") {
  RegisterGpu();
  if (OnRealGpu()) return;  // there may be one
  const std::vector<Trained> wanted = TrainWith(1, OnDevices("/cpu:"));
  const std::vector<Trained> got = TrainWith(2, OnDevices("/gpu:"));
  for (const Trained& worker : got) CheckNear(worker, wanted[0], 1e-3);
  CHECK(got[0].losses == got[1].losses);
  for (const auto& [name, value] : got[0].variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(got[1].variables.at(name)));
  }
}

// What each worker has of a product on its device, exchanged in every way.
std::vector<Tensor> Exchanged(const std::string& device,
                              std::shared_ptr<Collective> group) {
  const auto rank = static_cast<float>(group->rank());
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 2});
  const Output y =
      MatMul(x, graph.Constant(Tensor::Array<float>({2, 2}, {1, 2, rank, 4})));
  std::vector<Output> results = {
      Sum(AllReduce(y)), AllReduce(y),    AllGather(y), ReduceScatter(y),
      AllToAll(y),       Broadcast(y, 1), Reduce(y, 1)};
  for (Output& result : results) result = result + result;
  SessionOptions options;
  options.devices = {device};
  options.collective = std::move(group);
  Session session(graph, options);
  Tensor fed(DType::kFloat32, {4, 2});
  for (int64_t i = 0; i < 8; ++i) {
    fed.data<float>()[i] = rank + static_cast<float>(i);
  }
  std::vector<Tensor> values;
  for (int run = 0; run < 3; ++run) values = session.Run({{x, fed}}, results);
  return values;
}

TEST_CASE("what GPUs exchange is what CPUs do") {
  RegisterGpu();
  if (OnRealGpu()) return;
  std::vector<std::vector<Tensor>> of_cpus(2), of_gpus(2);
  for (const bool gpu : {false, true}) {
    dist::testing::Groups groups = dist::testing::JoinAll(2);
    const dist::testing::Watchdog watchdog;
    dist::testing::InThreads(2, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      (gpu ? of_gpus : of_cpus)[i] =
          Exchanged((gpu ? "/gpu:" : "/cpu:") + std::to_string(rank),
                    std::move(groups[i]));
    });
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(of_gpus[rank].size() == of_cpus[rank].size());
    for (size_t i = 0; i < of_gpus[rank].size(); ++i) {
      CAPTURE(i);
      CHECK(of_gpus[rank][i].BitEqual(of_cpus[rank][i]));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
