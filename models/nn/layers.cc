#include "models/nn/layers.h"

#include <fmt/format.h>

#include "graph/ops/array.h"
#include "graph/ops/conv.h"
#include "graph/ops/dropout.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/matmul.h"
#include "graph/ops/norm.h"
#include "graph/ops/pool.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/ops/state.h"
#include "models/nn/group_moments.h"

namespace sluice::layers {
namespace {

// Where a layer builds: names go below its scope and nodes are said to come
// from the user's line.
class LayerScope {
 public:
  LayerScope(const char* layer, const Scope& scope, const Operand& x)
      : layer_(layer),
        scope_(scope),
        where_(x.location()),
        location_(CheckGraph(x), where_),
        names_(scope) {}

  Graph& graph() const { return scope_.graph(); }

  Output Variable(const std::string& name, const initializers::Rule& rule,
                  const Shape& shape, DType dtype,
                  const VariableOptions& options = {}) const {
    return graph().Variable(name, rule(shape, dtype), options, where_);
  }

  [[noreturn]] void Fail(const std::string& message) const {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} '{}': {} ({})", layer_, scope_.name(), message,
                            FormatLocation(where_)));
  }
  void RequirePositive(const char* option, int64_t value) const {
    if (value <= 0)
      Fail(fmt::format("{} must be positive, got {}", option, value));
  }
  // x's last dimension, which must be known; its rank must be right.
  int64_t Channels(const Output& x, int least_rank, int most_rank,
                   const char* wanted) const {
    const Shape& shape = x.shape();
    if (shape.rank() < least_rank || shape.rank() > most_rank ||
        shape[-1] == kUnknown) {
      Fail(fmt::format("wanted {}, got {}", wanted, shape.ToString()));
    }
    return shape[-1];
  }

 private:
  Graph& CheckGraph(const Operand& x) const {
    if (&x.tensor().graph() != &scope_.graph()) {
      Fail("the scope and the operand belong to different graphs");
    }
    return scope_.graph();
  }

  const char* layer_;
  const Scope& scope_;
  std::source_location where_;
  LocationScope location_;
  NameScope names_;
};

// Rows of more than two dimensions [a, b, ..., n] as the rows of a matrix, and
// back: the last dimension of `rows` behind the leading ones of `like`.
Output AsMatrix(const Output& x) {
  return x.shape().rank() == 2 ? x : Reshape(x, {-1, x.shape()[-1]});
}
Output WithLeadingOf(const Output& like, const Output& rows) {
  const int leading = like.shape().rank() - 1;
  if (leading == 1) return rows;
  Shape shape = like.shape();
  shape.set(leading, rows.shape()[-1]);
  if (shape.concrete()) return Reshape(rows, shape);
  return Reshape(rows, Concat({Slice(ShapeOf(like), {0}, {leading}),
                               Slice(ShapeOf(rows), {1}, {1})},
                              0));
}

Output Activate(const Activation& activation, const Output& x) {
  return activation ? activation(x) : x;
}

// A statistic, as a call of BatchNorm finds it.
struct RunningStatistic {
  Output variable;
  // What calls before have made of it in the same step (ReuseVariables), and
  // their write: the variable itself, and none, if there is none.
  Output value;
  std::vector<Operation> written;
};
RunningStatistic StatisticOf(const Output& variable) {
  const std::vector<Operation>& updates = variable.graph().updates();
  for (auto update = updates.rbegin(); update != updates.rend(); ++update) {
    const Node& write = update->node();
    if (!write.Is("Assign") || write.input(0) != variable) continue;
    return {variable, write.input(1), {*update}};
  }
  return {variable, variable, {}};
}

// At the end of each step. The value before is handed on, not read behind the
// write, so that what needs the outputs alone writes nothing.
void MoveStatistic(const RunningStatistic& running, const Output& value) {
  Graph& graph = running.variable.graph();
  const ControlScope behind(graph, running.written);
  graph.AddUpdate(Assign(running.variable, value));
}

sluice::PoolOptions WindowOf(const PoolOptions& options) {
  const Extent &size = options.size, &stride = options.stride;
  return {.window = {size.height, size.width},
          .strides = {stride.height == 0 ? size.height : stride.height,
                      stride.width == 0 ? size.width : stride.width},
          .padding = options.padding,
          .explicit_padding = options.explicit_padding};
}

}  // namespace

Output Dense(const Scope& scope, Operand x, const DenseOptions& options) {
  LayerScope layer("Dense", scope, x);
  layer.RequirePositive("units", options.units);
  const int64_t in =
      layer.Channels(x.output(), 2, Shape::kMaxRank,
                     "[batch, ..., features] with the features known");
  const DType dtype = x.output().dtype();
  const Output weights =
      layer.Variable("weights", options.weights, {in, options.units}, dtype);
  Output y = MatMul(AsMatrix(x.output()), weights);
  if (options.use_bias) {
    y = BiasAdd(y,
                layer.Variable("bias", options.bias, {options.units}, dtype));
  }
  return Activate(options.activation, WithLeadingOf(x.output(), y));
}

Output Conv2D(const Scope& scope, Operand x, const Conv2DOptions& options) {
  LayerScope layer("Conv2D", scope, x);
  layer.RequirePositive("filters", options.filters);
  layer.RequirePositive("groups", options.groups);
  const int64_t in =
      layer.Channels(x.output(), 4, 4, "[batch, height, width, channels]");
  if (in % options.groups != 0) {
    layer.Fail(fmt::format("{} input channels do not divide into {} groups", in,
                           options.groups));
  }
  const DType dtype = x.output().dtype();
  const Output weights =
      layer.Variable("weights", options.weights,
                     {options.kernel.height, options.kernel.width,
                      in / options.groups, options.filters},
                     dtype);
  Output y = sluice::Conv2D(
      x, weights,
      {.strides = {options.stride.height, options.stride.width},
       .dilations = {options.dilation.height, options.dilation.width},
       .padding = options.padding,
       .explicit_padding = options.explicit_padding,
       .groups = options.groups});
  if (options.use_bias) {
    y = BiasAdd(y,
                layer.Variable("bias", options.bias, {options.filters}, dtype));
  }
  return Activate(options.activation, y);
}

Output MaxPool(Operand x, const PoolOptions& options) {
  return sluice::MaxPool(x, WindowOf(options));
}

Output AvgPool(Operand x, const PoolOptions& options) {
  return sluice::AvgPool(x, WindowOf(options));
}

Output GlobalAvgPool(Operand x) {
  return sluice::GlobalAvgPool(x);
}

Output BatchNorm(const Scope& scope, Operand x,
                 const BatchNormOptions& options) {
  LayerScope layer("BatchNorm", scope, x);
  const int64_t n =
      layer.Channels(x.output(), 2, Shape::kMaxRank, "[batch, ..., channels]");
  const DType dtype = ComputeDType(x.output().dtype());
  const auto variable = [&](const char* name, double first, bool trainable) {
    return layer.Variable(name, initializers::Constant(first), {n}, dtype,
                          {.trainable = trainable});
  };
  const Output scale = variable("scale", 1, true);
  const Output offset = variable("offset", 0, true);
  const Output mean = variable("running_mean", 0, false);
  const Output variance = variable("running_variance", 1, false);
  const bool frozen = layer.graph().Frozen(mean.name()) ||
                      layer.graph().Frozen(variance.name());
  if (!options.training || frozen) {
    return Activate(
        options.activation,
        BatchNormInference(x, scale, offset, mean, variance, options.epsilon));
  }
  const RunningStatistic running_mean = StatisticOf(mean);
  const RunningStatistic running_variance = StatisticOf(variance);
  if (options.synchronized) {
    const GroupMoments group = GroupMomentsOf(x.output());
    const Output unbiased =
        group.variance * group.rows / Maximum(group.rows - 1, 1);
    const Output some = Greater(group.rows, 0);  // else there is nothing new
    const auto move = [&](const RunningStatistic& running,
                          const Output& batch) {
      const Output& before = running.value;
      MoveStatistic(running, Select(some,
                                    options.momentum * before +
                                        (1 - options.momentum) * batch,
                                    before));
    };
    move(running_mean, group.mean);
    move(running_variance, unbiased);
    return Activate(options.activation,
                    BatchNormInference(x, scale, offset, group.mean,
                                       group.variance, options.epsilon));
  }
  const BatchNormOutputs normalized = sluice::BatchNorm(
      x, scale, offset, running_mean.value, running_variance.value,
      {.epsilon = options.epsilon, .momentum = options.momentum});
  MoveStatistic(running_mean, normalized.new_running_mean);
  MoveStatistic(running_variance, normalized.new_running_variance);
  return Activate(options.activation, normalized.y);
}

Output LayerNorm(const Scope& scope, Operand x,
                 const LayerNormOptions& options) {
  LayerScope layer("LayerNorm", scope, x);
  const int64_t n =
      layer.Channels(x.output(), 1, Shape::kMaxRank, "[..., features]");
  const DType dtype = ComputeDType(x.output().dtype());
  const Output scale =
      layer.Variable("scale", initializers::Constant(1), {n}, dtype);
  const Output offset =
      layer.Variable("offset", initializers::Constant(0), {n}, dtype);
  return sluice::LayerNorm(x, scale, offset, options.epsilon);
}

Output Dropout(const Scope& scope, Operand x, const DropoutOptions& options) {
  LayerScope layer("Dropout", scope, x);
  if (!(options.rate >= 0 && options.rate < 1)) {
    layer.Fail(
        fmt::format("the rate must lie in [0, 1), got {}", options.rate));
  }
  if (!options.training || options.rate == 0) return x.output();
  return sluice::Dropout(x, options.rate);
}

Output Embedding(const Scope& scope, Operand ids,
                 const EmbeddingOptions& options) {
  LayerScope layer("Embedding", scope, ids);
  layer.RequirePositive("size", options.size);
  layer.RequirePositive("dimensions", options.dimensions);
  return EmbeddingLookup(
      layer.Variable("table", options.table, {options.size, options.dimensions},
                     DType::kFloat32),
      ids);
}

Output Flatten(Operand x) {
  const Shape& shape = x.tensor().shape();
  const int64_t features =
      shape.rank() > 0 ? shape.elements(1, shape.rank()) : kUnknown;
  if (features == kUnknown) {
    throw Error(Code::kInvalidArgument,
                fmt::format("Flatten: wanted [batch, ...] with all but the "
                            "batch known, got {} ({})",
                            shape.ToString(), FormatLocation(x.location())));
  }
  return Reshape(x, {-1, features});
}

}  // namespace sluice::layers
