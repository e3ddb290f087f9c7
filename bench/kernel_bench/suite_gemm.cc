// The matrix products of the MNIST networks at batch 100 and of ResNet-50's
// last layer at 16, and squares.
#include <fmt/format.h>

#include "bench/kernel_bench/peers.h"
#include "graph/ops/matmul.h"

namespace sluice::bench {
namespace {

struct Product {
  const char* pass;  // which one of a layer's three, or of a square's forms
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// A layer of `out` units on rows of `in` values, and its gradients.
void AddLayer(int64_t rows, int64_t in, int64_t out,
              std::vector<Product>& products) {
  products.push_back({"forward", rows, out, in, false, false});
  products.push_back({"weights", in, out, rows, true, false});
  products.push_back({"data", rows, in, out, false, true});
}

Case ProductCase(const Product& p) {
  Graph graph;
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns,
                          bool transposed) {
    return graph.Placeholder(
        name, DType::kFloat32,
        transposed ? Shape{columns, rows} : Shape{rows, columns});
  };
  const Output c =
      MatMul(matrix("a", p.m, p.k, p.transpose_a),
             matrix("b", p.k, p.n, p.transpose_b),
             {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
  Case result = CaseOf("gemm", p.pass, c.node());
  result.shape = fmt::format("{}x{}x{}", p.m, p.n, p.k);
  result.flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
  result.reference = [p](const std::vector<Tensor>& in, int, int64_t at) {
    const int64_t row = at / p.n, column = at % p.n;
    double sum = 0;
    for (int64_t q = 0; q < p.k; ++q) {
      sum += F(in[0], p.transpose_a ? q * p.m + row : row * p.k + q) *
             F(in[1], p.transpose_b ? column * p.k + q : q * p.n + column);
    }
    return sum;
  };
  result.make_peer = [spec = result.spec](const Subject& ours) {
    Subject peer = BlasProduct(spec, ours);
    return peer.run ? peer : OnednnPeer(spec);
  };
  return result;
}

}  // namespace

std::vector<Case> GemmCases() {
  std::vector<Product> products;
  AddLayer(100, 784, 128, products);
  AddLayer(100, 128, 32, products);
  AddLayer(100, 32, 10, products);
  AddLayer(100, 784, 10, products);
  AddLayer(100, 3136, 1024, products);
  AddLayer(16, 2048, 1000, products);
  // What the second convolution of the MNIST cnn would be.
  products.push_back({"tall", 19600, 64, 800, false, false});
  products.push_back({"tall tn", 800, 64, 19600, true, false});
  for (int64_t n : {256, 512, 1024}) {
    products.push_back({"square", n, n, n, false, false});
    products.push_back({"square nt", n, n, n, false, true});
    products.push_back({"square tn", n, n, n, true, false});
  }
  std::vector<Case> cases;
  for (const Product& p : products) cases.push_back(ProductCase(p));
  return cases;
}

}  // namespace sluice::bench
