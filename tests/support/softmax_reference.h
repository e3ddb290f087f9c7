// Softmax, its logarithm and cross entropy of the rows of a matrix, in float64
// straight from their definitions, for any offset of the logits.
#ifndef SLUICE_TESTS_SUPPORT_SOFTMAX_REFERENCE_H_
#define SLUICE_TESTS_SUPPORT_SOFTMAX_REFERENCE_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "engine/tensor.h"

namespace sluice::testing {

// Offsets that leave the precisions of float32 and of the half types behind.
inline constexpr double kLogitOffsets[] = {0, 1e3, -1e3, 1e4, -1e4};

// Within 4 of the offset, rounded to the dtype. hidden: every fourth element,
// beginning with each row's second, is minus infinity.
inline Tensor OffsetLogits(DType dtype, int64_t rows, int64_t classes,
                           double offset, bool hidden = false) {
  std::mt19937_64 random(11);  // NOLINT: the same in every run
  Tensor x(DType::kFloat64, {rows, classes});
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<double>()[i] =
        offset + std::uniform_real_distribution(-4., 4.)(random);
    if (hidden && i % classes % 4 == 1) {
      x.data<double>()[i] = -std::numeric_limits<double>::infinity();
    }
  }
  return x.Cast(dtype);
}

// log(softmax(x)), float64.
inline Tensor LogSoftmaxReference(const Tensor& x) {
  const int64_t rows = x.shape()[0], classes = x.shape()[1];
  Tensor y(DType::kFloat64, x.shape());
  for (int64_t r = 0; r < rows; ++r) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < classes; ++i) {
      max = std::max(max, x.At(r * classes + i));
    }
    for (int64_t i = 0; i < classes; ++i) {
      sum += std::exp(x.At(r * classes + i) - max);
    }
    for (int64_t i = 0; i < classes; ++i) {
      y.data<double>()[r * classes + i] =
          (x.At(r * classes + i) - max) - std::log(sum);
    }
  }
  return y;
}

// Smoothed labels, [rows, classes], of dense ones or of a class per row.
inline Tensor SmoothedLabels(const Tensor& labels, int64_t classes,
                             double smoothing) {
  const bool dense = labels.shape().rank() == 2;
  const int64_t rows = labels.shape()[0];
  Tensor y(DType::kFloat64, {rows, classes});
  for (int64_t i = 0; i < y.elements(); ++i) {
    const double label =
        dense ? labels.At(i)
              : (labels.IntAt(i / classes) == i % classes ? 1.0 : 0.0);
    y.data<double>()[i] =
        (1 - smoothing) * label + smoothing / static_cast<double>(classes);
  }
  return y;
}

// -sum(labels * log_p) per row; labels smoothed.
inline Tensor CrossEntropyReference(const Tensor& log_p, const Tensor& labels) {
  const int64_t rows = log_p.shape()[0], classes = log_p.shape()[1];
  Tensor loss = Tensor::Zeros(DType::kFloat64, {rows});
  for (int64_t i = 0; i < log_p.elements(); ++i) {
    if (labels.At(i) == 0) continue;  // 0 log 0 is 0
    loss.data<double>()[i / classes] -= labels.At(i) * log_p.At(i);
  }
  return loss;
}

// dloss (softmax sum(labels) - labels); labels smoothed.
inline Tensor CrossEntropyGradReference(const Tensor& log_p,
                                        const Tensor& labels,
                                        const Tensor& dloss) {
  const int64_t rows = log_p.shape()[0], classes = log_p.shape()[1];
  Tensor dx(DType::kFloat64, log_p.shape());
  for (int64_t r = 0; r < rows; ++r) {
    double total = 0;
    for (int64_t i = 0; i < classes; ++i) total += labels.At(r * classes + i);
    for (int64_t at = r * classes; at < (r + 1) * classes; ++at) {
      dx.data<double>()[at] =
          dloss.At(r) * (std::exp(log_p.At(at)) * total - labels.At(at));
    }
  }
  return dx;
}

// The largest |got - wanted| relative to max(|wanted|, 1), in the distances of
// got's dtype from 1 to the next above; infinite where only one is finite.
inline double WorstUnits(const Tensor& got, const Tensor& wanted) {
  const double unit = got.dtype() == DType::kFloat64   ? 0x1p-52
                      : got.dtype() == DType::kFloat32 ? 0x1p-23
                      : got.dtype() == DType::kFloat16 ? 0x1p-10
                                                       : 0x1p-7;
  double worst = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = got.At(i), b = wanted.At(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error = std::abs(a - b) / (std::max(std::abs(b), 1.0) * unit);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity()
                              : std::max(worst, error);
  }
  return worst;
}

// What a result may be off: sums of some hundred terms; halves are rounded
// once, and what is kept for their gradient once too.
inline double AllowedUnits(DType dtype) {
  return IsHalf(dtype) ? 1 : 32;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SOFTMAX_REFERENCE_H_
