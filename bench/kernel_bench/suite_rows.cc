// Reductions, softmax and the loss on top of it.
#include <algorithm>
#include <cmath>

#include "bench/kernel_bench/peers.h"
#include "graph/autograd.h"
#include "graph/builder.h"

namespace sluice::bench {
namespace {

Output Input(Graph& graph, const char* name, const Shape& shape) {
  return graph.Placeholder(name, DType::kFloat32, shape);
}

// --- Reductions --------------------------------------------------------------

Case SumAll(int64_t n) {
  Graph graph;
  Case c = CaseOf("reduction", "all", Sum(Input(graph, "x", {n})).node());
  // The sum of n numbers of either sign: their largest partial sum decides.
  c.tolerance = 1e-3;
  c.reference = [](const std::vector<Tensor>& in, int, int64_t) {
    double sum = 0;
    for (float x : in[0].values<float>()) sum += static_cast<double>(x);
    return sum;
  };
  c.make_peer = [](const Subject& ours) {
    const Tensor x = ours.inputs[0];
    Tensor y = Tensor::Zeros(DType::kFloat32, {});
    return LoopPeer(
        [=]() mutable {
          *y.data<float>() =
              static_cast<float>(SumLoop(x.data<float>(), x.elements()));
        },
        {y});
  };
  return c;
}

Case SumColumns(int64_t rows, int64_t columns) {
  Graph graph;
  Case c = CaseOf("reduction", "columns",
                  Sum(Input(graph, "x", {rows, columns}), {0}).node());
  c.tolerance = 1e-4;
  c.samples = 16;
  c.reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += F(in[0], r * columns + at);
    return sum;
  };
  c.make_peer = [=](const Subject& ours) {
    const Tensor x = ours.inputs[0];
    Tensor y = Tensor::Zeros(DType::kFloat32, {columns});
    return LoopPeer(
        [=]() mutable {
          ColumnSumLoop(x.data<float>(), rows, columns, y.data<float>());
        },
        {y});
  };
  return c;
}

Case OverRows(const Output& y, int64_t columns, bool max) {
  Case c = CaseOf("reduction", "rows", y.node());
  c.reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
    double result = max ? -1e30 : 0;
    for (int64_t k = 0; k < columns; ++k) {
      const double x = F(in[0], at * columns + k);
      result = max ? std::max(result, x) : result + x;
    }
    return result;
  };
  return c;
}

// --- Softmax -----------------------------------------------------------------

double LogSumExpOf(const Tensor& x, int64_t row, int64_t columns) {
  double sum = 0;
  for (int64_t k = 0; k < columns; ++k) {
    sum += std::exp(F(x, row * columns + k));
  }
  return std::log(sum);
}

void AddSoftmax(int64_t rows, int64_t columns, std::vector<Case>& cases) {
  Graph graph;
  const Output x = Input(graph, "x", {rows, columns});
  for (const bool log : {false, true}) {
    Case c =
        CaseOf("softmax", "forward", (log ? LogSoftmax(x) : Softmax(x)).node());
    c.reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
      const double y = F(in[0], at) - LogSumExpOf(in[0], at / columns, columns);
      return log ? y : std::exp(y);
    };
    c.make_peer = [spec = c.spec](const Subject&) { return OnednnPeer(spec); };
    cases.push_back(c);
  }
}

void AddLoss(int64_t rows, int64_t classes, std::vector<Case>& cases) {
  Graph graph;
  const Output logits = Input(graph, "logits", {rows, classes});
  const Output labels = graph.Placeholder("labels", DType::kInt64, {rows});
  const Output loss =
      SparseSoftmaxCrossEntropy(logits, labels, {.label_smoothing = 0.1});
  const auto edit = [=](int i, Tensor& value) {
    if (i == 1) {
      for (int64_t r = 0; r < rows; ++r) {
        value.data<int64_t>()[r] = r * 7 % classes;
      }
    }
    if (i == 2 || i == 3) {  // max and scale of the backward case
      const float v = i == 2 ? 1.0f : 2.0f / static_cast<float>(classes);
      for (float& element : value.values<float>()) element = v;
    }
  };
  const auto label = [=](int64_t row, int64_t k) {
    return 0.1 / static_cast<double>(classes) +
           (row * 7 % classes == k ? 0.9 : 0.0);
  };
  Case c = CaseOf("softmax", "forward", loss.node(), edit);
  c.reference = [=](const std::vector<Tensor>& in, int result, int64_t row) {
    const double log_sum = LogSumExpOf(in[0], row, classes);
    double max = -1e30;
    for (int64_t k = 0; k < classes; ++k) {
      max = std::max(max, F(in[0], row * classes + k));
    }
    if (result == 1) return max;
    if (result == 2) return std::exp(max - log_sum);
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) {
      sum += label(row, k) * (log_sum - F(in[0], row * classes + k));
    }
    return sum;
  };
  cases.push_back(c);
  c = CaseOf("softmax", "backward", Gradients({loss}, {logits})[0].node(),
             edit);
  c.reference = [=](const std::vector<Tensor>& in, int, int64_t at) {
    const int64_t row = at / classes;
    const double p = F(in[3], row) * std::exp(F(in[0], at) - F(in[2], row));
    return F(in[4], row) * (p - label(row, at % classes));
  };
  cases.push_back(c);
}

}  // namespace

std::vector<Case> ReductionCases(int64_t images) {
  Graph graph;
  std::vector<Case> cases = {SumAll(int64_t{1} << 24), SumAll(102'400),
                             SumColumns(images * 112 * 112, 64),
                             SumColumns(images * 56 * 56, 256),
                             SumColumns(images * 7 * 7, 2048)};
  const Output x = Input(graph, "x", {images * 56 * 56, 256});
  cases.push_back(OverRows(Sum(x, {1}), 256, false));
  cases.push_back(OverRows(Max(x, {1}), 256, true));
  return cases;
}

std::vector<Case> SoftmaxCases() {
  std::vector<Case> cases;
  AddSoftmax(100, 10, cases);
  AddSoftmax(16, 1000, cases);
  AddSoftmax(4096, 1000, cases);
  AddLoss(100, 10, cases);
  AddLoss(16, 1000, cases);
  AddLoss(4096, 1000, cases);
  return cases;
}

}  // namespace sluice::bench
