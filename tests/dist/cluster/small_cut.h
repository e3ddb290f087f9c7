// A graph cut in two: a variable on worker 0, doubled on worker 1.
#ifndef SLUICE_TESTS_DIST_CLUSTER_SMALL_CUT_H_
#define SLUICE_TESTS_DIST_CLUSTER_SMALL_CUT_H_

#include <memory>
#include <string>
#include <utility>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/dist/cluster/workers.h"

namespace sluice::dist::testing {

inline std::string CpuOf(int task) {
  return WorkerName(task) + "/cpu:0";
}

struct SmallCut {
  Graph graph;
  Output x, v, twice;
  Operation add;

  SmallCut() {
    x = graph.Placeholder("x", DType::kFloat32, {4});
    {
      const DeviceScope there(graph, CpuOf(0));
      v = graph.Variable("v", Zeros({4}));
      add = AssignAdd(v, x);
    }
    const ControlScope after(graph, {add});
    const DeviceScope there(graph, CpuOf(1));
    twice = Tanh(v) * 2.0;
  }
  SessionOptions Options(std::shared_ptr<Cluster> cluster) const {
    SessionOptions options;
    options.devices = {"/cpu:0", CpuOf(0), CpuOf(1)};
    options.cluster = std::move(cluster);
    return options;
  }
  Tensor One() const { return Tensor::Array<float>({4}, {1, 1, 1, 1}); }
  Tensor Run(Session& session) const {
    return session.Run({{x, One()}}, twice);
  }
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_SMALL_CUT_H_
