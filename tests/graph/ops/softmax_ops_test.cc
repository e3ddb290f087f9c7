// Every CPU kernel of softmax, its logarithm and the cross entropies against
// float64 straight from the definitions, for logits far from 0: what is added
// to all logits of a row must not cost precision.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/reduce.h"
#include "graph/ops/softmax.h"
#include "tests/support/kernel_run.h"
#include "tests/support/softmax_reference.h"

namespace sluice::testing {
namespace {

constexpr DType kFloatTypes[] = {DType::kFloat32, DType::kFloat64,
                                 DType::kFloat16, DType::kBFloat16};
constexpr int64_t kRows = 7;
// One class, fewer than a vector, a short row, one longer than a block.
constexpr int64_t kClasses[] = {1, 10, 100, 1500};

template <typename Check>
void ForEachCase(const Check& check) {
  for (DType dtype : kFloatTypes) {
    for (int64_t classes : kClasses) {
      for (double offset : kLogitOffsets) {
        for (bool hidden : {false, true}) {
          CAPTURE(NameOf(dtype));
          CAPTURE(classes);
          CAPTURE(offset);
          CAPTURE(hidden);
          check(OffsetLogits(dtype, kRows, classes, offset, hidden), hidden);
        }
      }
    }
  }
}

void CheckClose(const char* what, const Tensor& got, const Tensor& wanted) {
  CAPTURE(what);
  CHECK(WorstUnits(got, wanted) <= AllowedUnits(got.dtype()));
}

// Calls check(results) for every kernel of the op.
template <typename Check>
void ForEachKernel(const std::string& op, const Attributes& attrs,
                   const std::vector<Tensor>& inputs, const Check& check) {
  Graph graph;
  NodeRequest request{op, {}, attrs};
  for (const Tensor& x : inputs) {
    request.inputs.emplace_back(graph.Placeholder("x", x.dtype(), x.shape()));
  }
  const KernelSpec spec = SpecOf(graph.Add(std::move(request)), false);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    CAPTURE(op);
    CAPTURE(def->provider);
    check(RunKernel(*def, spec, inputs));
  }
}

Tensor ExpOf(const Tensor& x) {
  Tensor y(DType::kFloat64, x.shape());
  for (int64_t i = 0; i < x.elements(); ++i) {
    y.data<double>()[i] = std::exp(x.At(i));
  }
  return y;
}

TEST_CASE("softmax and its logarithm at any offset") {
  ForEachCase([](const Tensor& x, bool) {
    const Tensor log_p = LogSoftmaxReference(x);
    ForEachKernel("LogSoftmax", {{"axis", -1}}, {x}, [&](const auto& y) {
      CheckClose("log_softmax", y[0], log_p);
    });
    ForEachKernel("Softmax", {{"axis", -1}}, {x}, [&](const auto& y) {
      CheckClose("softmax", y[0], ExpOf(log_p));
    });
  });
}

// The loss, its gradient from what the loss keeps, and both in one.
void CheckCrossEntropy(const std::string& op, const Tensor& x,
                       const Tensor& labels, double smoothing) {
  const Tensor log_p = LogSoftmaxReference(x);
  const Tensor smoothed = SmoothedLabels(labels, x.shape()[1], smoothing);
  Tensor dloss(DType::kFloat64, {kRows});
  for (int64_t r = 0; r < kRows; ++r) {
    dloss.data<double>()[r] = 0.25 * static_cast<double>(r + 1);
  }
  const Tensor loss = CrossEntropyReference(log_p, smoothed);
  const Tensor dx = CrossEntropyGradReference(log_p, smoothed, dloss);
  dloss = dloss.Cast(x.dtype());
  CAPTURE(smoothing);
  const Attributes attrs = {{"label_smoothing", smoothing}};
  ForEachKernel(op, attrs, {x, labels}, [&](const std::vector<Tensor>& y) {
    CheckClose("loss", y[0], loss);
    std::vector<Tensor> inputs = {x, labels};
    inputs.insert(inputs.end(), y.begin() + 1, y.end());
    inputs.push_back(dloss);
    ForEachKernel(op + "Grad", attrs, inputs,
                  [&](const auto& z) { CheckClose("dlogits", z[0], dx); });
  });
  ForEachKernel(op + "WithGrad", attrs, {x, labels, dloss},
                [&](const std::vector<Tensor>& y) {
                  CheckClose("loss", y[0], loss);
                  CheckClose("dlogits", y.back(), dx);
                });
}

TEST_CASE("cross entropy and its gradient at any offset") {
  ForEachCase([](const Tensor& x, bool hidden) {
    const int64_t classes = x.shape()[1];
    Tensor label(DType::kInt64, {kRows});
    for (int64_t r = 0; r < kRows; ++r) {
      label.data<int64_t>()[r] = r * 4 % classes / 4 * 4;  // not hidden
    }
    CheckCrossEntropy("SparseSoftmaxCrossEntropy", x, label, 0);
    if (hidden) return;  // every class counts
    CheckCrossEntropy("SparseSoftmaxCrossEntropy", x, label, 0.1);
    const Tensor dense = SmoothedLabels(label, classes, 0.3).Cast(x.dtype());
    CheckCrossEntropy("SoftmaxCrossEntropy", x, dense, 0);
    CheckCrossEntropy("SoftmaxCrossEntropy", x, dense, 0.1);
  });
}

TEST_CASE("the gradient of LogSumExp at any offset") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (double offset : kLogitOffsets) {
      const Tensor x = OffsetLogits(dtype, kRows, 100, offset);
      Graph graph;
      const Output in = graph.Constant(x);
      const Tensor dx =
          Evaluate(Gradients({LogSumExp(in, {1})}, {in})[0], {}).ValueOrThrow();
      CAPTURE(offset);
      CheckClose("dx", dx, ExpOf(LogSoftmaxReference(x)));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
