// The CUDA kernels of softmax and the cross-entropy losses, emulated, against
// the CPU's; far from 0 against float64 straight from the definitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/ops/reduce/loss.h"
#include "kernels/cuda/ops/reduce/softmax.h"
#include "tests/kernels/cuda/emulation/device_run.h"
#include "tests/support/softmax_reference.h"

namespace sluice::cuda {
namespace {

// In units of the dtype: float sums of a few hundred terms in another order;
// half results are rounded once.
double UnitsFor(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 32 : 1;
}

void CheckSoftmax(const std::string& op, DType dtype, const AxisForm& shape,
                  size_t skip = 0, bool in_place = false) {
  const Shape full{shape.outer, shape.n, shape.inner};
  const Tensor x = RandomTensor(dtype, full, -4, 6);
  Attributes attrs;
  attrs.Set("axis", int64_t{1});
  const Tensor wanted = CpuResults(op, attrs, {x}, {{dtype, full}}).front();
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer in(x, skip), out(x.bytes(), skip);
        const DeviceBuffer& y = in_place ? in : out;
        CHECK(FindSoftmax(op, dtype)(in.get(), y.get(), shape, nullptr).ok());
        return std::vector{y.Read(dtype, full)};
      }).front();
  const std::string difference =
      Difference(got, wanted, UnitsFor(dtype), op == "Softmax" ? 1e-3 : 1);
  CHECK_MESSAGE(difference.empty(), op, " of [", shape.outer, ",", shape.n, ",",
                shape.inner, "]: ", difference);
}

TEST_CASE("softmax and its logarithm, along the last axis and others") {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (DType dtype : kFloatTypes) {
      CheckSoftmax(op, dtype, {5, 10, 1});
      CheckSoftmax(op, dtype, {3, 136, 1});
      CheckSoftmax(op, dtype, {2, 33, 7});
    }
    CheckSoftmax(op, DType::kFloat32, {3, 136, 1}, 4);
    CheckSoftmax(op, DType::kFloat32, {2, 1500, 1});
    CheckSoftmax(op, DType::kFloat32, {4, 1, 1});
    CheckSoftmax(op, DType::kFloat32, {3, 136, 1}, 0, /*in_place=*/true);
    CheckSoftmax(op, DType::kFloat32, {3, 77, 2}, 0, /*in_place=*/true);
  }
}

TEST_CASE("large logits do not overflow") {
  const Tensor x = Tensor::Array<float>({1, 3}, {1000, 1000, -1000});
  const DeviceBuffer in(x), out(x.bytes());
  CHECK(FindSoftmax("Softmax", DType::kFloat32)(in.get(), out.get(), {1, 3, 1},
                                                nullptr)
            .ok());
  const Tensor y = out.Read(DType::kFloat32, {3});
  CHECK(y.At(0) == 0.5);
  CHECK(y.At(2) == 0);
}

TEST_CASE("LogSoftmax at any offset") {
  for (DType dtype : kFloatTypes) {
    for (double offset : testing::kLogitOffsets) {
      for (int64_t classes : {1, 10, 136}) {
        const bool hidden = classes == 10;
        const Tensor x =
            testing::OffsetLogits(dtype, 5, classes, offset, hidden);
        const DeviceBuffer in(x), out(x.bytes());
        CHECK(FindSoftmax("LogSoftmax", dtype)(in.get(), out.get(),
                                               {5, classes, 1}, nullptr)
                  .ok());
        CAPTURE(NameOf(dtype));
        CAPTURE(offset);
        CHECK(testing::WorstUnits(out.Read(dtype, x.shape()),
                                  testing::LogSoftmaxReference(x)) <=
              testing::AllowedUnits(dtype));
      }
    }
  }
}

TEST_CASE("LogSoftmax of very many classes keeps the digits of each") {
  const int64_t classes = 1 << 20;
  Tensor x = Tensor::Full(DType::kFloat32, {1, classes}, std::log(0.1));
  x.data<float>()[3] = 0;
  const DeviceBuffer in(x), out(x.bytes());
  CHECK(FindSoftmax("LogSoftmax", DType::kFloat32)(in.get(), out.get(),
                                                   {1, classes, 1}, nullptr)
            .ok());
  const Tensor y = out.Read(DType::kFloat32, x.shape());
  const Tensor wanted = testing::LogSoftmaxReference(x);
  double worst = 0;
  for (int64_t i = 0; i < classes; ++i) {
    worst = std::max(worst, std::abs(y.At(i) - wanted.At(i)));
  }
  CHECK(worst < 1e-5);
}

// --- Losses ------------------------------------------------------------------

enum class Wanted : uint8_t { kLoss, kGrad, kBoth };
constexpr const char* kSuffix[] = {"", "Grad", "WithGrad"};

struct LossCase {
  DType dtype = DType::kFloat32;
  int64_t rows = 7, classes = 10;
  double smoothing = 0;
  size_t skip = 0;
  bool in_place = false;  // the gradient takes the place of the logits
};

// `labels` is dense if it has the logits' shape.
void CheckLoss(const LossCase& c, const Tensor& labels, Wanted wanted) {
  const bool dense = labels.shape().rank() == 2;
  const Shape full{c.rows, c.classes}, rows{c.rows};
  const Tensor x = RandomTensor(c.dtype, full, -3, 3);
  const Tensor dloss = RandomTensor(c.dtype, rows, 0.5, 2, 5);
  const std::string op =
      (dense ? "SoftmaxCrossEntropy" : "SparseSoftmaxCrossEntropy") +
      std::string(kSuffix[static_cast<int>(wanted)]);
  Attributes attrs;
  attrs.Set("label_smoothing", c.smoothing);
  const TensorType full_type = {c.dtype, full}, row_type = {c.dtype, rows};
  // What the gradient alone is given.
  const std::vector<Tensor> kept =
      CpuResults(dense ? "SoftmaxCrossEntropy" : "SparseSoftmaxCrossEntropy",
                 attrs, {x, labels}, {row_type, row_type, row_type});
  std::vector<Tensor> inputs = {x, labels};
  std::vector<TensorType> outputs;
  if (wanted == Wanted::kGrad) {
    inputs.insert(inputs.end(), kept.begin() + 1, kept.end());
  }
  if (wanted != Wanted::kLoss) inputs.push_back(dloss);
  if (wanted != Wanted::kGrad) outputs = {row_type, row_type, row_type};
  if (wanted != Wanted::kLoss) outputs.push_back(full_type);
  const std::vector<Tensor> cpu = CpuResults(op, attrs, inputs, outputs);

  const CrossEntropyLauncher launch =
      dense ? FindCrossEntropy(c.dtype)
            : FindSparseCrossEntropy(c.dtype, labels.dtype());
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer logits(x, c.skip), label(labels);
    const DeviceBuffer max_in(kept[1]), scale_in(kept[2]), grad_in(dloss);
    const DeviceBuffer loss(dloss.bytes()), max_out(dloss.bytes()),
        scale_out(dloss.bytes());
    const DeviceBuffer own(x.bytes(), c.skip);
    const DeviceBuffer& dlogits = c.in_place ? logits : own;
    CrossEntropyOperands o;
    o.logits = logits.get();
    o.labels = label.get();
    if (wanted != Wanted::kGrad) {
      o.loss = loss.get();
      o.max_out = max_out.get();
      o.scale_out = scale_out.get();
    } else {
      o.max = max_in.get();
      o.scale = scale_in.get();
    }
    if (wanted != Wanted::kLoss) {
      o.dloss = grad_in.get();
      o.dlogits = dlogits.get();
    }
    CHECK(launch({c.rows, c.classes, c.smoothing}, o, nullptr).ok());
    std::vector<Tensor> results;
    if (wanted != Wanted::kGrad) {
      results = {loss.Read(c.dtype, rows), max_out.Read(c.dtype, rows),
                 scale_out.Read(c.dtype, rows)};
    }
    if (wanted != Wanted::kLoss) results.push_back(dlogits.Read(c.dtype, full));
    return results;
  });
  for (size_t i = 0; i < cpu.size(); ++i) {
    const std::string difference =
        Difference(got[i], cpu[i], UnitsFor(c.dtype), 1);
    CHECK_MESSAGE(difference.empty(), op, " output ", i, " of ", difference);
  }
}

Tensor Classes(int64_t rows, int64_t classes, DType dtype) {
  Tensor labels(DType::kInt64, {rows});
  for (int64_t r = 0; r < rows; ++r) {
    labels.data<int64_t>()[r] = (r * 7 + 3) % classes;
  }
  return labels.Cast(dtype);
}

void CheckLosses(const LossCase& c) {
  const Tensor dense = RandomTensor(c.dtype, {c.rows, c.classes}, 0, 0.2, 9);
  for (Wanted wanted : {Wanted::kLoss, Wanted::kGrad, Wanted::kBoth}) {
    CheckLoss(c, dense, wanted);
    CheckLoss(c, Classes(c.rows, c.classes, DType::kInt64), wanted);
    CheckLoss(c, Classes(c.rows, c.classes, DType::kInt32), wanted);
  }
}

TEST_CASE("cross entropy, its gradient and both, dense and sparse") {
  for (DType dtype : kFloatTypes) {
    CheckLosses({.dtype = dtype});
    CheckLosses({.dtype = dtype, .classes = 144, .smoothing = 0.1});
  }
  CheckLosses({.rows = 3, .classes = 1001, .smoothing = 0.1});
  CheckLosses({.rows = 70, .classes = 64, .skip = 4});
  CheckLosses({.rows = 5, .classes = 1, .smoothing = 0});
  // More than a run of terms a thread.
  CheckLosses({.rows = 1, .classes = 66'000, .smoothing = 0.1});
}

// Both at once, and the gradient from what the loss keeps.
void CheckOffset(DType dtype, int64_t classes, double offset, double smoothing,
                 bool dense) {
  const int64_t rows = 5;
  const Tensor x = testing::OffsetLogits(dtype, rows, classes, offset);
  const Tensor labels = dense ? RandomTensor(dtype, x.shape(), 0, 0.2)
                              : Classes(rows, classes, DType::kInt64);
  const Tensor dloss = RandomTensor(dtype, {rows}, 0.5, 2, 5);
  const Tensor log_p = testing::LogSoftmaxReference(x);
  const Tensor smoothed = testing::SmoothedLabels(labels, classes, smoothing);
  const DeviceBuffer logits(x), label(labels), grad(dloss), dx(x.bytes());
  const DeviceBuffer loss(dloss.bytes()), max(dloss.bytes()),
      scale(dloss.bytes());
  const auto launch = dense ? FindCrossEntropy(dtype)
                            : FindSparseCrossEntropy(dtype, labels.dtype());
  CrossEntropyOperands o;
  o.logits = logits.get();
  o.labels = label.get();
  o.dloss = grad.get();
  o.dlogits = dx.get();
  o.loss = loss.get();
  o.max_out = max.get();
  o.scale_out = scale.get();
  const auto check = [&] {
    CHECK(launch({rows, classes, smoothing}, o, nullptr).ok());
    const double allowed = testing::AllowedUnits(dtype);
    CHECK(testing::WorstUnits(
              loss.Read(dtype, {rows}),
              testing::CrossEntropyReference(log_p, smoothed)) <= allowed);
    CHECK(testing::WorstUnits(dx.Read(dtype, x.shape()),
                              testing::CrossEntropyGradReference(
                                  log_p, smoothed, dloss)) <= allowed);
  };
  CAPTURE(NameOf(dtype));
  CAPTURE(offset);
  CAPTURE(dense);
  check();
  o.loss = o.max_out = o.scale_out = nullptr;
  o.max = max.get();
  o.scale = scale.get();
  check();
}

TEST_CASE("cross entropy and its gradient at any offset") {
  for (DType dtype : kFloatTypes) {
    for (double offset : testing::kLogitOffsets) {
      for (bool dense : {false, true}) {
        CheckOffset(dtype, 10, offset, 0, dense);
        CheckOffset(dtype, 136, offset, 0.1, dense);
        CheckOffset(dtype, 1, offset, 0, dense);
      }
    }
  }
}

TEST_CASE("the gradient may take the place of the logits") {
  CheckLosses({.classes = 136, .in_place = true});
  CheckLosses({.classes = 137, .smoothing = 0.2, .in_place = true});
}

TEST_CASE("a label that is no class is reported; its row has no gradient") {
  const Tensor x = RandomTensor(DType::kFloat32, {6, 40}, -1, 1);
  const Tensor labels =
      Tensor::Vector<int64_t>(std::vector<int64_t>{0, 39, 40, 3, -1, 5});
  InEveryOrder([&] {
    const DeviceBuffer logits(x), label(labels), loss(24);
    const DeviceBuffer max(24), scale(24);
    const DeviceBuffer dloss(Tensor::Full(DType::kFloat32, {6}, 1));
    BadIndex bad = kNoBadIndex;
    CrossEntropyOperands o;
    o.bad = &bad;
    o.logits = logits.get();
    o.labels = label.get();
    o.dloss = dloss.get();
    o.loss = loss.get();
    o.max_out = max.get();
    o.scale_out = scale.get();
    o.dlogits = logits.get();
    CHECK(FindSparseCrossEntropy(x.dtype(), labels.dtype())({6, 40, 0}, o,
                                                            nullptr)
              .ok());
    CHECK_EQ(bad, (BadIndex{2} << 32 | 40));
    const Tensor losses = loss.Read(DType::kFloat32, {6});
    const Tensor gradient = logits.Read(DType::kFloat32, {6, 40});
    for (int64_t r = 0; r < 6; ++r) {
      const bool is_class = r != 2 && r != 4;
      CHECK(std::isfinite(losses.At(r)) == is_class);
      for (int64_t i = 0; i < 40; ++i) {
        CHECK((gradient.At(r * 40 + i) != 0) == is_class);
      }
    }
    return std::vector{losses, gradient};
  });
}

TEST_CASE("sigmoid cross entropy") {
  for (DType dtype : kFloatTypes) {
    const Tensor x = RandomTensor(dtype, {303}, -20, 20);
    const Tensor labels = RandomTensor(dtype, {303}, 0, 1, 2);
    const Tensor wanted =
        CpuResults("SigmoidCrossEntropy", {}, {x, labels}, {{dtype, {303}}})
            .front();
    const Shape shapes[] = {{303}, {303}};
    const Tensor got = InEveryOrder([&] {
                         const DeviceBuffer a(x), b(labels), y(x.bytes());
                         CHECK(FindSigmoidCrossEntropy(dtype)(
                                   a.get(), b.get(), y.get(),
                                   BroadcastOf({303}, shapes), {}, nullptr)
                                   .ok());
                         return std::vector{y.Read(dtype, {303})};
                       }).front();
    const std::string difference = Difference(got, wanted, UnitsFor(dtype), 1);
    CHECK_MESSAGE(difference.empty(), difference);
  }
}

}  // namespace
}  // namespace sluice::cuda
