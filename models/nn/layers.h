// Layers: functions that add variables and ops to a graph.
//
//   x = layers::Conv2D(scope / "conv1", x, {.filters = 32, .kernel = 5,
//                                           .activation = Relu});
//
// A layer's variables are named "<scope>/weights" and so on; a second call with
// the scope is an error but within ReuseVariables (graph/reuse_variables.h),
// where the two share them. Errors name the layer, the shape it was given and
// the caller's line. Images are NHWC.
#ifndef SLUICE_MODELS_NN_LAYERS_H_
#define SLUICE_MODELS_NN_LAYERS_H_

#include <array>
#include <cstdint>
#include <functional>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/padding.h"
#include "models/nn/initializers.h"

namespace SLUICE_PUBLIC sluice {
namespace layers {

// Relu, Tanh, Sigmoid, a lambda, ...; nullptr: none.
using Activation = std::function<Output(Operand)>;

// A vertical and a horizontal size; one number means both.
struct Extent {
  int64_t height, width;
  Extent(int64_t both) : height(both), width(both) {}  // NOLINT: implicit
  Extent(int64_t h, int64_t w) : height(h), width(w) {}
};

struct DenseOptions {
  int64_t units = 0;
  Activation activation = nullptr;
  bool use_bias = true;
  initializers::Rule weights = initializers::GlorotUniform();
  initializers::Rule bias = initializers::Constant(0);
};
// activation(x * weights + bias) over the last dimension, which must be known:
// [n, in] to [n, units], [n, ..., in] to [n, ..., units]. Images take Flatten
// first where all pixels count together. Variables: weights [in, units], bias
// [units].
Output Dense(const Scope& scope, Operand x, const DenseOptions& options);

struct Conv2DOptions {
  int64_t filters = 0;
  Extent kernel = 3;
  Extent stride = 1;
  Extent dilation = 1;
  Padding padding = Padding::kSame;
  // Top, bottom, left, right; read with Padding::kExplicit alone.
  std::array<int64_t, 4> explicit_padding = {0, 0, 0, 0};
  int64_t groups = 1;
  Activation activation = nullptr;
  bool use_bias = true;
  initializers::Rule weights = initializers::GlorotUniform();
  initializers::Rule bias = initializers::Constant(0);
};
// [n, h, w, in] to [n, h', w', filters]. Variables: weights [kernel height,
// kernel width, in / groups, filters], bias [filters].
Output Conv2D(const Scope& scope, Operand x, const Conv2DOptions& options);

struct PoolOptions {
  Extent size = 2;
  Extent stride = 0;  // a height or width of 0: that of the size
  Padding padding = Padding::kValid;
  // As Conv2DOptions::explicit_padding, each less than the size.
  std::array<int64_t, 4> explicit_padding = {0, 0, 0, 0};
};
Output MaxPool(Operand x, const PoolOptions& options = {});
Output AvgPool(Operand x, const PoolOptions& options = {});
// [n, h, w, c] to [n, c].
Output GlobalAvgPool(Operand x);

struct BatchNormOptions {
  // Whether to normalise by the batch and to update the running statistics
  // (Graph::updates, which Minimize runs), or to normalise by the running
  // statistics. If these are frozen (Graph::Freeze), always by them.
  bool training = false;
  double momentum = 0.9;  // of the running statistics
  double epsilon = 1e-5;
  Activation activation = nullptr;
  // Whether training normalises by the batches of all workers together
  // (SessionOptions::collective) rather than by each worker's own: the same as
  // one worker with the whole batch, at four exchanges per layer and step.
  bool synchronized = false;
};
// Normalises over all dimensions but the last. Calls that share their variables
// (ReuseVariables) each normalise by their own batch, and move the running
// statistics one after the other. Variables, of the size of the
// last: scale, offset and, not trainable, running_mean and running_variance.
Output BatchNorm(const Scope& scope, Operand x,
                 const BatchNormOptions& options = {});

struct LayerNormOptions {
  double epsilon = 1e-5;
};
// Normalises over the last dimension. Variables of its size: scale and offset.
Output LayerNorm(const Scope& scope, Operand x,
                 const LayerNormOptions& options = {});

struct DropoutOptions {
  double rate = 0.5;  // of the elements that become zero
  bool training = false;
};
// x itself unless training. Which elements are dropped depends on the scope's
// name, the seed and the global step.
Output Dropout(const Scope& scope, Operand x, const DropoutOptions& options);

struct EmbeddingOptions {
  int64_t size = 0;  // ids are in [0, size)
  int64_t dimensions = 0;
  initializers::Rule table = initializers::Uniform(-0.05, 0.05);
};
// Integer ids [...] to [..., dimensions]. Variable: table [size, dimensions].
Output Embedding(const Scope& scope, Operand ids,
                 const EmbeddingOptions& options);

// [n, a, b, ...] to [n, a * b * ...]; all but n must be known.
Output Flatten(Operand x);

}  // namespace layers
}  // namespace sluice

#endif  // SLUICE_MODELS_NN_LAYERS_H_
