#include "models/nn/initializers.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/random.h"

namespace sluice::initializers {
namespace {

struct Fans {
  double in, out;
};

Fans FansOf(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {1, 1};
  if (rank == 1) {
    const double n = static_cast<double>(shape[0]);
    return {n, n};
  }
  const double window = static_cast<double>(shape.elements(0, rank - 2));
  return {window * static_cast<double>(shape[-2]),
          window * static_cast<double>(shape[-1])};
}

// The deviation of a standard normal cut off at two deviations.
constexpr double kTruncatedDeviation = 0.87962566103423978;

// A rule made for every shape from its fans.
template <typename Make>
Rule Scaled(Make make) {
  return {[make](const Shape& shape, DType dtype) {
    const Fans fans = FansOf(shape);
    return make({std::max(fans.in, 1.0), std::max(fans.out, 1.0)})(shape,
                                                                   dtype);
  }};
}

}  // namespace

Rule Constant(double value) {
  return {[=](const Shape& shape, DType dtype) {
    return Filled(value, shape, dtype);
  }};
}

Rule Uniform(double lo, double hi) {
  return {[=](const Shape& shape, DType dtype) {
    return Initializer{dtype, shape, [=](Graph& graph) {
                         return RandomUniform(graph, shape, lo, hi, dtype);
                       }};
  }};
}

Rule Normal(double stddev, double mean) {
  return {[=](const Shape& shape, DType dtype) {
    return Initializer{dtype, shape, [=](Graph& graph) {
                         return RandomNormal(graph, shape, mean, stddev, dtype);
                       }};
  }};
}

Rule TruncatedNormal(double stddev, double mean) {
  return {[=](const Shape& shape, DType dtype) {
    return Initializer{dtype, shape, [=](Graph& graph) {
                         return sluice::TruncatedNormal(graph, shape, mean,
                                                        stddev, dtype);
                       }};
  }};
}

Rule GlorotUniform() {
  return Scaled([](Fans fans) {
    const double limit = std::sqrt(6 / (fans.in + fans.out));
    return Uniform(-limit, limit);
  });
}

Rule GlorotNormal() {
  return Scaled([](Fans fans) {
    return TruncatedNormal(std::sqrt(2 / (fans.in + fans.out)) /
                           kTruncatedDeviation);
  });
}

Rule HeNormal() {
  return Scaled([](Fans fans) {
    return TruncatedNormal(std::sqrt(2 / fans.in) / kTruncatedDeviation);
  });
}

Rule LecunNormal() {
  return Scaled([](Fans fans) {
    return TruncatedNormal(std::sqrt(1 / fans.in) / kTruncatedDeviation);
  });
}

Rule HeUniform() {
  return Scaled([](Fans fans) {
    const double limit = std::sqrt(6 / fans.in);
    return Uniform(-limit, limit);
  });
}

}  // namespace sluice::initializers
