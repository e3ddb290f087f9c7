// Random networks in which one tensor often enters an op, or a group of ops
// that fusion makes one, in several places: a convolution whose addend is what
// it convolves, a product of a matrix with itself, a scatter into its updates.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_NETWORK_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_NETWORK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice::testing {

// Images [2, h, w, c] or matrices [n, n], by the seed. All values have one
// shape, so that any may be any operand; they stay moderate.
class RandomNetwork {
 public:
  RandomNetwork(Graph& graph, uint32_t seed, int layers,
                DType dtype = DType::kFloat32)
      : graph_(graph), random_(seed), dtype_(dtype), images_(seed % 2 == 0) {
    channels_ = Pick({1, 4, 5, 16, 32});
    size_ = Pick({5, 8, 24});
    shape_ = images_ ? Shape{2, Pick({4, 9}), Pick({5, 8}), channels_}
                     : Shape{size_, size_};
    if (!images_) channels_ = size_;
    x_ = graph.Placeholder("x", dtype, shape_);
    values_ = {x_};
    for (int i = 0; i < layers; ++i) values_.push_back(Next());
    fetches_ = {values_.back(), Any()};
  }

  // A loss and its gradients with respect to the variables and x, to be
  // fetched as well.
  void AddGradients(const GradientOptions& options = {}) {
    const Output loss = Mean(Square(values_.back())) + Mean(Abs(Any()));
    Outputs xs = graph_.TrainableVariables();
    xs.push_back(x_);
    fetches_.push_back(loss);
    for (const Output& dx : Gradients({loss}, xs, {}, options)) {
      if (dx.valid()) fetches_.push_back(dx);
    }
  }

  const std::vector<Output>& fetches() const { return fetches_; }
  std::vector<Feed> Feeds() const {
    return {{x_, Numbers(shape_, 1, 1).Cast(dtype_)}};
  }

 private:
  int64_t Pick(std::initializer_list<int64_t> from) {
    return from.begin()[random_() % from.size()];
  }
  bool Chance(int of) { return random_() % of == 0; }
  // Mostly the latest or one before it.
  Output Any() {
    const size_t n = values_.size();
    const size_t back = Chance(4) ? n : std::min<size_t>(n, 2);
    return values_[n - 1 - random_() % back];
  }

  static Tensor Numbers(const Shape& shape, double scale, uint32_t seed) {
    Tensor t(DType::kFloat64, shape);
    std::mt19937 random(seed);
    for (double& v : t.values<double>()) {
      v = scale * (static_cast<double>(random() % 2048) / 1024 - 1);
    }
    return t;
  }
  Output Weights(const Shape& shape, double scale) {
    return graph_.Variable(
        "w" + std::to_string(variables_++),
        CopyOf(Numbers(shape, scale, static_cast<uint32_t>(random_()))
                   .Cast(dtype_)));
  }
  // Float32 where values are half: statistics and their factors.
  Output Vector(double from, double to, bool trainable = true) {
    Tensor t =
        Numbers({channels_}, (to - from) / 2, static_cast<uint32_t>(random_()));
    for (double& v : t.values<double>()) v += (from + to) / 2;
    return graph_.Variable("v" + std::to_string(variables_++),
                           CopyOf(t.Cast(ComputeDType(dtype_))), {trainable});
  }

  // With what fusion puts behind a product: bias, addend, ReLU.
  Output Decorated(Output y) {
    if (Chance(2)) y = BiasAdd(y, Weights({channels_}, 0.5));
    if (!Chance(3)) y = Chance(2) ? y + Any() : Any() + y;
    if (Chance(3)) y = y + Any();
    return Chance(2) ? Relu(y) : y;
  }

  Output Convolution(const Output& a) {
    const int64_t k = Pick({1, 3, 5});
    Conv2DOptions options;
    if (Chance(4)) options.dilations = {2, 2};
    if (Chance(5)) {
      return DepthwiseConv2D(a, Weights({k, k, channels_, 1}, 0.5), options);
    }
    if (channels_ % 4 == 0 && Chance(4)) options.groups = channels_ / 4;
    const int64_t in = channels_ / options.groups;
    return Conv2D(a,
                  Weights({k, k, in, channels_},
                          1 / std::sqrt(static_cast<double>(k * k * in))),
                  options);
  }

  Output Normalised(const Output& a) {
    const Output scale = Vector(0.5, 1.5), offset = Vector(-0.5, 0.5);
    if (Chance(3)) return LayerNorm(a, scale, offset);
    const Output mean = Vector(-0.2, 0.2, false);
    const Output variance = Vector(0.5, 2, false);
    if (Chance(2)) return BatchNorm(a, scale, offset, mean, variance).y;
    return BatchNormInference(a, scale, offset, mean, variance);
  }

  Output Image(const Output& a) {
    switch (random_() % 5) {
      case 0:
        return Decorated(Convolution(a));
      case 1: {
        Output y = Normalised(Chance(2) ? a : Convolution(a));
        if (!Chance(3)) y = y + Any();
        return Chance(2) ? Relu(y) : y;
      }
      case 2:
        return MaxPool(a, {{3, 3}, {1, 1}, Padding::kSame}) - Any();
      case 3:
        return AvgPool(a, {{3, 3}, {1, 1}, Padding::kSame}) + Any();
      default:
        return Decorated(Convolution(a));
    }
  }

  Output Matrix(const Output& a) {
    std::vector<int64_t> at(size_);
    for (int64_t& i : at) i = static_cast<int64_t>(random_() % size_);
    const Output indices =
        graph_.Constant(Tensor::Vector<int64_t>(std::span(at)));
    const double scale = 1.0 / static_cast<double>(size_);
    switch (random_() % 8) {
      case 0:
        return ScatterAdd(a, indices, Any()) * 0.5;
      case 1:
        return Gather(ScatterAdd(a, indices, a), indices) * 0.5 + Any();
      case 2:
        return Normalised(a) + Any();
      case 3:
        return SoftmaxCrossEntropyOf(a);
      case 4:
        return Decorated(MatMul(a, Transpose(Any()) * scale));
      default:
        return Decorated(
            MatMul(a * scale, Any(),
                   {.transpose_a = Chance(2), .transpose_b = Chance(2)}));
    }
  }

  // Softmax, its logarithm, or a loss of rows spread over them again.
  Output SoftmaxCrossEntropyOf(const Output& a) {
    if (Chance(3)) return Softmax(a) * 2.0 - Any();
    if (Chance(2)) return LogSoftmax(a) * 0.25;
    const Output loss = SoftmaxCrossEntropy(a, Softmax(Any()));
    return BroadcastToShapeOf(ExpandDims(loss, -1), a) * 0.2;
  }

  Output Elementwise(const Output& a) {
    switch (random_() % 6) {
      case 0:
        return Tanh(a) + Any();
      case 1:
        return Select(Greater(a, Any()), a, Any());
      case 2:
        return AddN({a, Any(), a}) * 0.4;
      case 3:
        return Maximum(a, Any() * 0.5);
      case 4:
        return Tanh(a * Any());
      default:
        return Relu(a);
    }
  }

  Output Next() {
    const Output a = Any();
    if (Chance(3)) return Elementwise(a);
    return images_ ? Image(a) : Matrix(a);
  }

  Graph& graph_;
  std::mt19937 random_;
  const DType dtype_;
  const bool images_;
  int64_t channels_ = 0, size_ = 0;
  int variables_ = 0;
  Shape shape_;
  Output x_;
  std::vector<Output> values_, fetches_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_NETWORK_H_
