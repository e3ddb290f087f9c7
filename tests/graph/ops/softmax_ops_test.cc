// Every CPU kernel of softmax, its logarithm and the cross entropies against
// float64 straight from the definitions, for logits far from 0: what is added
// to all logits of a row must not cost precision.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/reduce.h"
#include "graph/ops/softmax.h"
#include "tests/support/each_kernel.h"
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

TEST_CASE("softmax of very many classes keeps the digits of each") {
  struct Case {
    int64_t classes, lines;
    int axis;
  };
  for (const Case& c : {Case{1 << 17, 1, -1}, Case{1 << 14, 2, 0}}) {
    // The lines are alike, side by side where they are columns.
    const Shape shape =
        c.axis == 0 ? Shape{c.classes, c.lines} : Shape{c.lines, c.classes};
    Tensor x = Tensor::Full(DType::kFloat32, shape, std::log(0.1));
    for (int64_t i = 0; i < c.lines; ++i) x.data<float>()[i] = 0;
    const Tensor log_p = LogSoftmaxReference(x.Reshaped({1, x.elements()}));
    // The reference sees them as one line, in which every class is `lines`
    // times.
    const double lines = std::log(static_cast<double>(c.lines));
    const auto all = [&](const Tensor& y, const auto& error) {
      for (int64_t i = 0; i < y.elements(); ++i) {
        if (!(error(y.At(i), log_p.At(i) + lines) < 1e-5)) return false;
      }
      return true;
    };
    const Attributes attrs = {{"axis", c.axis}};
    CAPTURE(c.axis);
    ForEachKernel("Softmax", attrs, {x}, [&](const auto& y) {
      CHECK(all(y[0], [](double got, double log_wanted) {
        return std::abs(got / std::exp(log_wanted) - 1);
      }));
    });
    ForEachKernel("LogSoftmax", attrs, {x}, [&](const auto& y) {
      CHECK(all(y[0], [](double got, double wanted) {
        return std::abs(got - wanted);
      }));
    });
  }
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

TEST_CASE("cross entropy of very many classes keeps the digits of each") {
  const Shape shape = {1, 1 << 17};
  Tensor x = Tensor::Full(DType::kFloat32, shape, std::log(0.1));
  x.data<float>()[3] = 0;
  const Tensor log_p = LogSoftmaxReference(x);
  for (const double smoothing : {0.0, 0.1}) {
    CAPTURE(smoothing);
    const auto check = [&](const std::string& op, const Tensor& labels) {
      const double wanted =
          CrossEntropyReference(log_p,
                                SmoothedLabels(labels, shape[1], smoothing))
              .At(0);
      ForEachKernel(op, {{"label_smoothing", smoothing}}, {x, labels},
                    [&](const auto& y) {
                      CHECK(std::abs(y[0].At(0) / wanted - 1) < 1e-5);
                    });
    };
    check("SparseSoftmaxCrossEntropy", Tensor::Full(DType::kInt64, {1}, 5));
    check("SoftmaxCrossEntropy", Tensor::Full(DType::kFloat32, shape, 0.1F));
  }
}

TEST_CASE("alike labels and logits of very many classes have no gradient") {
  const Shape shape = {1, 100'000};
  const double p = 1e-5;
  for (const double smoothing : {0.0, 0.1}) {
    CAPTURE(smoothing);
    ForEachKernel("SoftmaxCrossEntropyWithGrad",
                  {{"label_smoothing", smoothing}},
                  {Tensor::Full(DType::kFloat32, shape, 0.5),
                   Tensor::Full(DType::kFloat32, shape, p),
                   Tensor::Full(DType::kFloat32, {1}, 1)},
                  [&](const auto& y) {
                    double worst = 0;
                    for (int64_t i = 0; i < shape[1]; ++i) {
                      worst = std::max(worst, std::abs(y.back().At(i)));
                    }
                    CHECK(worst < 1e-5 * p);
                  });
  }
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
