// Matrix products, pooling, normalisation, dropout and losses: what the golden
// values and the walk over the op table leave open.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/conv.h"
#include "graph/ops/dropout.h"
#include "graph/ops/loss.h"
#include "graph/ops/matmul.h"
#include "graph/ops/norm.h"
#include "graph/ops/pool.h"
#include "graph/ops/softmax.h"
#include "tests/support/guarded_run.h"

namespace sluice::testing {
namespace {

Tensor Random(const Shape& shape, int seed, DType dtype = DType::kFloat32) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor t(DType::kFloat64, shape);
  for (double& v : t.values<double>()) v = uniform(random);
  return t.Cast(dtype);
}

// A graph of placeholders with values.
struct Bench {
  Graph graph;
  std::map<Output, Tensor> given;

  Output Feed(Tensor value) {
    const Output x = graph.Placeholder("x", value.dtype(), value.shape());
    given[x] = std::move(value);
    return x;
  }
  Tensor Value(const Output& output, const StepContext& step = {}) {
    return Evaluate(output, given, step).ValueOrThrow();
  }
};

// --- Matrix products ---------------------------------------------------------

// Element (i, j) of op(m), a matrix at `at`.
double Element(const Tensor& m, int64_t at, bool transposed, int64_t i,
               int64_t j) {
  const int64_t columns = m.shape()[-1];
  return m.At(at + (transposed ? j * columns + i : i * columns + j));
}

TEST_CASE("matrix products of all kernels, transposes and dtypes") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      const bool ta = transposes & 1, tb = transposes & 2;
      const int64_t m = 13, n = 37, k = 70;
      Bench bench;
      const Output a =
          bench.Feed(Random(ta ? Shape{k, m} : Shape{m, k}, 1, dtype));
      const Output b =
          bench.Feed(Random(tb ? Shape{n, k} : Shape{k, n}, 2, dtype));
      const Node& node =
          MatMul(a, b, {.transpose_a = ta, .transpose_b = tb}).node();
      const KernelSpec spec = SpecOf(node, false);
      for (const KernelDef* def :
           KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
        KernelPtr kernel = def->make(spec).ValueOrThrow();
        const GuardedRunResult run =
            GuardedRun(*kernel, spec, {bench.given[a], bench.given[b]}, 0);
        INFO(NameOf(dtype), " ", def->provider, " ", transposes);
        CHECK(run.fault == "");
        double worst = 0;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) {
              sum += Element(bench.given[a], 0, ta, i, p) *
                     Element(bench.given[b], 0, tb, p, j);
            }
            worst =
                std::max(worst, std::abs(run.tensors[0].At(i * n + j) - sum));
          }
        }
        CHECK(worst < (dtype == DType::kFloat64   ? 1e-12
                       : dtype == DType::kFloat32 ? 1e-5
                       : dtype == DType::kFloat16 ? 1e-2
                                                  : 1e-1));
      }
    }
  }
}

TEST_CASE("batches of matrices broadcast") {
  Bench bench;
  const Output a = bench.Feed(Random({2, 1, 3, 4}, 1));
  const Output b = bench.Feed(Random({5, 4, 6}, 2));
  const Tensor y = bench.Value(BatchMatMul(a, b));
  CHECK(y.shape() == Shape{2, 5, 3, 6});
  double worst = 0;
  for (int64_t g = 0; g < 2; ++g) {
    for (int64_t h = 0; h < 5; ++h) {
      for (int64_t e = 0; e < 18; ++e) {
        double sum = 0;
        for (int64_t p = 0; p < 4; ++p) {
          sum += Element(bench.given[a], g * 12, false, e / 6, p) *
                 Element(bench.given[b], h * 24, false, p, e % 6);
        }
        worst = std::max(worst, std::abs(y.At((g * 5 + h) * 18 + e) - sum));
      }
    }
  }
  CHECK(worst < 1e-6);
}

// --- Pooling -----------------------------------------------------------------

TEST_CASE("among equal elements the first of a window gets the gradient") {
  Bench bench;
  const Output x =
      bench.Feed(Tensor::Array<float>({1, 2, 4, 1}, {1, 3, 2, 2, 3, 3, 2, 2}));
  const Output y = MaxPool(x);
  const Output dy = bench.Feed(Tensor::Array<float>({1, 1, 2, 1}, {5, 7}));
  const Tensor dx = bench.Value(Gradients({y}, {x}, {dy})[0]);
  CHECK(dx.BitEqual(
      Tensor::Array<float>({1, 2, 4, 1}, {0, 5, 7, 0, 0, 0, 0, 0})));
}

TEST_CASE("MaxPool passes NaN on; rows left over get no gradient") {
  Bench bench;
  const Output x =
      bench.Feed(Tensor::Array<float>({1, 3, 2, 1}, {1, NAN, 2, 3, 9, 9}));
  const Output y = MaxPool(x);
  CHECK(std::isnan(bench.Value(y).At(0)));
  const Output z =
      bench.Feed(Tensor::Array<float>({1, 3, 2, 1}, {1, 4, 2, 3, 9, 9}));
  const Output pooled = MaxPool(z);
  const Tensor dz = bench.Value(Gradients({pooled}, {z})[0]);
  CHECK(dz.BitEqual(Tensor::Array<float>({1, 3, 2, 1}, {0, 1, 0, 0, 0, 0})));
}

TEST_CASE("padding that fills a window is refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1, 4, 4, 1});
  CHECK_THROWS_WITH_AS(MaxPool(x, {.padding = Padding::kExplicit,
                                   .explicit_padding = {2, 0, 0, 0}}),
                       doctest::Contains("nothing to look at"), Error);
  CHECK_THROWS_AS(MaxPool(x, {.window = {5, 5}}), Error);
  // Of an image without elements too, but where there is no window.
  const Output none = graph.Placeholder("none", DType::kFloat32, {1, 0, 4, 1});
  CHECK_THROWS_WITH_AS(MaxPool(none, {.strides = {1, 1},
                                      .padding = Padding::kExplicit,
                                      .explicit_padding = {1, 1, 0, 0}}),
                       doctest::Contains("around no elements"), Error);
  CHECK(MaxPool(none, {.padding = Padding::kSame}).shape() ==
        Shape{1, 0, 2, 1});
}

TEST_CASE("shapes given to gradients leave open the batch alone") {
  Graph graph;
  const auto placeholder = [&](const Shape& shape) {
    return graph.Placeholder("x", DType::kFloat32, shape);
  };
  const auto dims = [&](std::initializer_list<int64_t> values) {
    const auto rank = static_cast<int64_t>(values.size());
    return graph.Constant(Tensor::Array<int64_t>({rank}, values));
  };
  const auto refused = doctest::Contains("negative dimension -1");
  const Output x = placeholder({2, 8, 4, 3}), dy = placeholder({2, 8, 4, 5});
  const Output filter = placeholder({3, 3, 3, 5});
  CHECK(Conv2DBackpropInput(dy, filter, dims({-1, 8, 4, 3})).shape() ==
        x.shape());
  CHECK_THROWS_WITH_AS(Conv2DBackpropInput(dy, filter, dims({2, -1, 4, 3})),
                       refused, Error);
  CHECK_THROWS_WITH_AS(Conv2DBackpropFilter(x, dy, dims({3, 3, -1, 5})),
                       refused, Error);

  const PoolOptions halves = {.window = {2, 2}, .strides = {2, 2}};
  const Output of_pools = placeholder({2, 4, 2, 3});
  CHECK(AvgPoolGrad(of_pools, dims({-1, 8, 4, 3}), halves).shape() ==
        x.shape());
  CHECK_THROWS_WITH_AS(AvgPoolGrad(of_pools, dims({2, -1, 4, 3}), halves),
                       refused, Error);
}

TEST_CASE("global average") {
  Bench bench;
  const Output x = bench.Feed(
      Tensor::Array<float>({1, 2, 2, 2}, {1, 10, 2, 20, 3, 30, 6, 60}));
  CHECK(bench.Value(GlobalAvgPool(x))
            .BitEqual(Tensor::Array<float>({1, 2}, {3, 30})));
}

// --- Normalisation -----------------------------------------------------------

TEST_CASE("statistics of many rows, in blocks, agree with those in double") {
  const int64_t rows = 5000, channels = 7;
  Bench bench;
  Tensor values = Random({rows, channels}, 3);
  for (float& v : values.values<float>()) v += 100;
  const Output x = bench.Feed(values);
  const Output one = bench.Feed(Tensor::Full(DType::kFloat32, {channels}, 1));
  const BatchNormOutputs out = BatchNorm(x, one, one, one, one);
  const Tensor mean = bench.Value(out.mean);
  const Tensor inv_std = bench.Value(out.inv_std);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < rows; ++r) sum += values.At(r * channels + c);
    for (int64_t r = 0; r < rows; ++r) {
      squares += std::pow(values.At(r * channels + c) - sum / rows, 2);
    }
    CHECK(mean.At(c) == doctest::Approx(sum / rows).epsilon(1e-6));
    CHECK(inv_std.At(c) ==
          doctest::Approx(1 / std::sqrt(squares / rows + 1e-5)).epsilon(1e-5));
  }
}

// What is left of a mean that is large beside the distances from it.
TEST_CASE("statistics keep the digits of distances from a large mean") {
  for (const int64_t channels : {1, 3, 8, 64}) {
    for (const double mean : {33.3, 100.1, -1000.1}) {
      for (const double off : {0.0, mean * 1e-4}) {
        CAPTURE(channels);
        CAPTURE(mean);
        CAPTURE(off);
        const int64_t rows = 16384;
        Bench bench;
        Tensor values(DType::kFloat32, {rows, channels});
        for (int64_t i = 0; i < values.elements(); ++i) {
          values.data<float>()[i] = static_cast<float>(
              mean + (i / channels % 3 == 0 ? 2 * off : -off));
        }
        const auto all = [&](double value) {
          return bench.Feed(Tensor::Full(DType::kFloat32, {channels}, value));
        };
        const BatchNormOutputs out =
            BatchNorm(bench.Feed(values), all(1), all(0), all(0), all(1));
        const Tensor y = bench.Value(out.y), got = bench.Value(out.mean);
        const Tensor inv_std = bench.Value(out.inv_std);
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < rows; ++r) sum += values.At(r * channels);
        for (int64_t r = 0; r < rows; ++r) {
          squares += std::pow(values.At(r * channels) - sum / rows, 2);
        }
        const double scale = 1 / std::sqrt(squares / rows + 1e-5);
        for (int64_t c = 0; c < channels; ++c) {
          // The means of blocks are rounded to float32, and what they become.
          const double rounded = std::abs(mean) * 0x1p-22;
          CHECK(std::abs(got.At(c) - sum / rows) <= rounded);
          CHECK(inv_std.At(c) == doctest::Approx(scale).epsilon(2e-3));
          CHECK(std::abs(y.At(c) - (values.At(c) - sum / rows) * scale) <=
                0.01 + rounded * scale);
        }
      }
    }
  }
}

TEST_CASE("a wide row keeps the digits of distances from a large mean") {
  for (const int64_t width : {512, 4096, 16384, 65543}) {
    for (const double value : {10.1, 100.1, 1000.1}) {
      Bench bench;
      const Output x =
          bench.Feed(Tensor::Full(DType::kFloat32, {2, width}, value));
      const auto all = [&](double one) {
        return bench.Feed(Tensor::Full(DType::kFloat32, {width}, one));
      };
      const Tensor y = bench.Value(LayerNorm(x, all(1), all(0)));
      for (const int64_t i : {int64_t{0}, width, 2 * width - 1}) {
        CHECK_MESSAGE(std::abs(y.At(i)) < 0.02, width, " of ", value, ": ",
                      y.At(i));
      }
    }
  }
}

TEST_CASE("an empty batch has statistics, and leaves the running ones alone") {
  for (const Shape& shape : {Shape{0, 3}, Shape{2, 0, 4, 3}}) {
    Bench bench;
    const Output x = bench.Feed(Tensor(DType::kFloat32, shape));
    const Output old = bench.Feed(Tensor::Array<float>({3}, {5, -6, 7}));
    const BatchNormOutputs out =
        BatchNorm(x, old, old, old, old, {.epsilon = 0.25});
    CHECK(bench.Value(out.y).shape() == shape);
    for (int64_t c = 0; c < 3; ++c) {
      CHECK(bench.Value(out.mean).At(c) == 0);
      CHECK(bench.Value(out.inv_std).At(c) == 2);
      CHECK(bench.Value(out.new_running_mean).At(c) == bench.given[old].At(c));
      CHECK(bench.Value(out.new_running_variance).At(c) ==
            bench.given[old].At(c));
    }
  }
}

// --- The same bits for any number of threads ---------------------------------

TEST_CASE("the bits do not depend on the number of threads") {
  Bench bench;
  const Output image = bench.Feed(Random({9, 16, 16, 20}, 1));
  const Output vector = bench.Feed(Random({20}, 2));
  const Output positive = bench.Feed(Tensor::Full(DType::kFloat32, {20}, 2));
  const Output square = bench.Feed(Random({300, 300}, 4));
  const BatchNormOutputs batch_norm =
      BatchNorm(image, vector, vector, vector, positive);
  const std::vector<Output> ys = {
      batch_norm.y,
      LayerNorm(image, vector, vector),
      MaxPool(image),
      AvgPool(image, {.window = {3, 3}, .strides = {1, 1}}),
      Dropout(image, 0.5),
      L2Loss(image),
      Softmax(image),
      MatMul(square, square),
  };
  std::vector<Output> fetches = {batch_norm.new_running_variance};
  for (const Output& y : ys) {
    fetches.push_back(y);
    for (const Output& g : Gradients({y}, {image, vector})) {
      if (g.valid()) fetches.push_back(g);
    }
  }
  for (const Output& fetch : fetches) {
    SetComputeThreads(1);
    const Tensor alone = bench.Value(fetch);
    for (int threads : {2, 3}) {
      SetComputeThreads(threads);
      INFO(fetch.name());
      CHECK(bench.Value(fetch).BitEqual(alone));
    }
  }
  SetComputeThreads(0);
}

// --- Dropout -----------------------------------------------------------------

TEST_CASE("dropout keeps the share it should and scales it") {
  Bench bench;
  const Output x = bench.Feed(Tensor::Full(DType::kFloat32, {100'000}, 1));
  const Output y = Dropout(x, 0.3);
  const Tensor value = bench.Value(y);
  int64_t kept = 0;
  for (float v : value.values<float>()) {
    CHECK_UNARY(v == 0 || std::abs(v - 1 / 0.7f) < 1e-6);
    kept += v != 0;
  }
  // Five standard deviations of a binomial.
  CHECK(std::abs(static_cast<double>(kept) - 70'000) < 5 * 145);
  // The gradient goes where the value went.
  CHECK(bench.Value(Gradients({y}, {x})[0]).BitEqual(value));
}

TEST_CASE("the mask depends on seed, step, replica and node") {
  Bench bench;
  const Output x = bench.Feed(Tensor::Full(DType::kFloat32, {1000}, 1));
  const Output y = Dropout(x, 0.5), other = Dropout(x, 0.5);
  const Tensor mask = bench.Value(y, {{.seed = 1, .step = 2, .replica = 3}});
  CHECK(bench.Value(y, {{.seed = 1, .step = 2, .replica = 3}}).BitEqual(mask));
  CHECK(!bench.Value(y, {{.seed = 0, .step = 2, .replica = 3}}).BitEqual(mask));
  CHECK(!bench.Value(y, {{.seed = 1, .step = 3, .replica = 3}}).BitEqual(mask));
  CHECK(!bench.Value(y, {{.seed = 1, .step = 2, .replica = 4}}).BitEqual(mask));
  CHECK(!bench.Value(other, {{.seed = 1, .step = 2, .replica = 3}})
             .BitEqual(mask));
}

TEST_CASE("dropout of nothing is the identity, and wrong rates are refused") {
  Bench bench;
  const Output x = bench.Feed(Random({50}, 1));
  CHECK(bench.Value(Dropout(x, 0)).BitEqual(bench.given[x]));
  CHECK_THROWS_AS(Dropout(x, 1), Error);
  CHECK_THROWS_AS(Dropout(x, -0.1), Error);
}

// --- Losses ------------------------------------------------------------------

TEST_CASE("a label that is no class fails the step and is named") {
  for (int64_t wrong : {-1, 10}) {
    Bench bench;
    const Output logits = bench.Feed(Random({4, 10}, 1));
    const Output labels =
        bench.Feed(Tensor::Array<int64_t>({4}, {3, 9, wrong, wrong}));
    const Output loss = SparseSoftmaxCrossEntropy(logits, labels);
    const Status status = Evaluate(loss, bench.given).status();
    CHECK(status.code() == Code::kOutOfRange);
    const std::string& message = status.message();
    INFO(message);
    CHECK(message.find(fmt::format("label {} in row 2", wrong)) !=
          std::string::npos);
    CHECK(message.find("10 classes") != std::string::npos);
    CHECK(message.find("sparse_softmax_cross_entropy") != std::string::npos);
  }
}

TEST_CASE("labels of the wrong shape are refused") {
  Graph graph;
  const Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kUnknown, 10});
  const Output labels =
      graph.Placeholder("labels", DType::kInt64, {kUnknown, 10});
  CHECK_THROWS_WITH_AS(SparseSoftmaxCrossEntropy(logits, labels),
                       doctest::Contains("labels of shape"), Error);
  CHECK(SparseSoftmaxCrossEntropy(
            logits, graph.Placeholder("l", DType::kInt32, {kUnknown}))
            .shape() == Shape{kUnknown});
}

}  // namespace
}  // namespace sluice::testing
