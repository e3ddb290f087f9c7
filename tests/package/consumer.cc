// A user's program: only public headers, found only through the package. It
// fits y = 2 x by gradient descent, so ops, gradients, kernels and session
// must all have survived linking.
#include <sluice/sluice.h>

#include <cmath>
#include <cstdio>

using namespace sluice;  // NOLINT(google-build-using-namespace): an example

int main() {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 1});
  const Output y = graph.Placeholder("y", DType::kFloat32, {4, 1});
  const Output weight = graph.Variable("weight", Zeros({1, 1}));
  const Output loss = Mean(Square(MatMul(x, weight) - y));
  const Operation train = optimizers::Sgd(0.1).Minimize(loss);

  Session session(graph);
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
