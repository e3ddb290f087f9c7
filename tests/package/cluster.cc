// A user's master, and the worker that it trains on, in one program: of real
// ones each is a process (`sluice worker`), also on other hosts. Found through
// the package alone, as consumer.cc.
#include <sluice/sluice.h>

#include <cmath>
#include <cstdio>
#include <string>

using namespace sluice;  // NOLINT(google-build-using-namespace): an example

int main() {
  const std::string task = "/job:worker/task:0", there = task + "/cpu:0";
  const std::string token(32, 't');  // dist::ReadTokenFile reads a real one
  const auto worker =
      dist::Worker::Start({.task = {.name = task, .token = token}})
          .ValueOrThrow();

  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 1});
  const Output y = graph.Placeholder("y", DType::kFloat32, {4, 1});
  Operation train;
  Output weight;
  {
    const DeviceScope on(graph, there);
    weight = graph.Variable("weight", Zeros({1, 1}));
    train = optimizers::Sgd(0.1).Minimize(Mean(Square(MatMul(x, weight) - y)));
  }

  SessionOptions options;
  options.devices = {"/cpu:0", there};
  options.cluster = dist::MakeCluster({.task = {.token = token}},
                                      {{task, "127.0.0.1", worker->port()}})
                        .ValueOrThrow();
  Session session(graph, options);
  session.Initialize();
  const Tensor inputs = Tensor::Array<float>({4, 1}, {0, 1, 2, 3});
  const Tensor targets = Tensor::Array<float>({4, 1}, {0, 2, 4, 6});
  for (int step = 0; step < 50; ++step) {
    session.Run({{x, inputs}, {y, targets}}, train);
  }
  const double fitted = session.Read(weight).At(0);
  std::printf("weight %.4f\n", fitted);
  return std::abs(fitted - 2) < 1e-3 ? 0 : 1;
}
