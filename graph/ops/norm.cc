#include "graph/ops/norm.h"

#include "graph/ops/channels.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/expression.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// All axes but the last.
Axes Leading(const Output& x) {
  Axes axes;
  for (int i = 0; i + 1 < x.shape().rank(); ++i) axes.push_back(i);
  return axes;
}
Output OverRows(const Output& x) {
  const Axes axes = Leading(x);
  return axes.empty() ? x : Sum(x, axes);  // no axes would mean all of them
}
// The number of rows that share a channel, as a vector over the channels.
Output Rows(const Output& x) {
  return OverRows(OnesLike(x));
}

// Where x is half, statistics and arithmetic are in float32 (kComputeOfT).
Output Widened(const Output& x) {
  return CastTo(x, ComputeDType(x.dtype()));
}
Output LikeX(const Output& y, const Output& x) {
  return CastTo(y, x.dtype());
}

// --- BatchNorm ---------------------------------------------------------------

// BatchNormGrad in terms of simple ops, to be differentiated.
Outputs BatchNormGradExpression(const Node&, const Outputs& in) {
  const Output x = Widened(in[0]), scale = in[1], mean = in[2];
  const Output inv_std = in[3], dy = Widened(in[4]);
  const Output normal = (x - mean) * inv_std;
  const Output dscale = OverRows(dy * normal);
  const Output doffset = OverRows(dy);
  const Output dx =
      scale * inv_std * (dy - (doffset + normal * dscale) / Rows(x));
  return {LikeX(dx, in[0]), dscale, doffset};
}

// What flows back through the statistics, which are outputs too.
Output ThroughStatistics(const Node& node, const Outputs& dy) {
  const Output x = Widened(node.input(0));
  const Output mean = node.output(1), inv_std = node.output(2);
  const double fresh = 1 - node.attrs().Float("momentum");
  const Output count = Rows(x);
  Output dmean = ZerosLike(mean), dvariance = ZerosLike(mean);
  if (dy[1].valid()) dmean = dmean + dy[1];
  if (dy[2].valid()) {
    dvariance = dvariance - 0.5 * inv_std * inv_std * inv_std * dy[2];
  }
  if (dy[3].valid()) dmean = dmean + fresh * dy[3];
  if (dy[4].valid()) {
    dvariance = dvariance + fresh * count / Maximum(count - 1.0, 1.0) * dy[4];
  }
  return LikeX((dmean + 2.0 * dvariance * (x - mean)) / count, node.input(0));
}

Outputs BatchNormGradient(const Node& node, const Outputs& dy) {
  const double momentum = node.attrs().Float("momentum");
  Outputs dx(5);
  if (dy[0].valid()) {
    Node& grad = node.graph().Add({"BatchNormGrad",
                                   {node.input(0), node.input(1),
                                    node.output(1), node.output(2), dy[0]}});
    for (int i = 0; i < 3; ++i) dx[i] = grad.output(i);
  }
  if (dy[1].valid() || dy[2].valid() || dy[3].valid() || dy[4].valid()) {
    const Output rest = ThroughStatistics(node, dy);
    dx[0] = dx[0].valid() ? dx[0] + rest : rest;
  }
  for (int i : {3, 4}) {
    if (dy[i].valid()) dx[i] = dy[i] * momentum;
  }
  return dx;
}

// --- LayerNorm ---------------------------------------------------------------

Outputs LayerNormGradExpression(const Node&, const Outputs& in) {
  const Output x = Widened(in[0]), scale = in[1], dy = Widened(in[4]);
  const Output mean = ExpandDims(in[2], -1), inv_std = ExpandDims(in[3], -1);
  const Output normal = (x - mean) * inv_std;
  const Output g = dy * scale;
  const Output dx = inv_std * (g - Mean(g, {-1}, true) -
                               normal * Mean(g * normal, {-1}, true));
  return {LikeX(dx, in[0]), OverRows(dy * normal), OverRows(dy)};
}

Outputs LayerNormGradient(const Node& node, const Outputs& dy) {
  Outputs dx(3);
  if (dy[0].valid()) {
    Node& grad = node.graph().Add({"LayerNormGrad",
                                   {node.input(0), node.input(1),
                                    node.output(1), node.output(2), dy[0]}});
    for (int i = 0; i < 3; ++i) dx[i] = grad.output(i);
  }
  const Output x = Widened(node.input(0));
  const Output mean = ExpandDims(node.output(1), -1);
  const Output inv_std = ExpandDims(node.output(2), -1);
  auto add = [&](const Output& wide) {
    const Output g = LikeX(wide, node.input(0));
    dx[0] = dx[0].valid() ? dx[0] + g : g;
  };
  const Output count = Sum(OnesLike(x), {-1}, true);
  if (dy[1].valid()) {
    add(BroadcastToShapeOf(ExpandDims(dy[1], -1) / count, x));
  }
  if (dy[2].valid()) {
    add(-1.0 * inv_std * inv_std * inv_std * ExpandDims(dy[2], -1) *
        (x - mean) / count);
  }
  return dx;
}

// --- By given statistics -----------------------------------------------------

Output BatchNormAgain(const Node& node, const Outputs& in) {
  return node.graph()
      .Add({"BatchNormApply",
            {in[0], in[1], in[2], node.output(1), node.output(2)}})
      .output(0);
}

// With respect to x, scale, offset, mean and inv_std.
Outputs ApplyGradientWith(const Output& inv_std, const Node& node,
                          const Output& dy) {
  const Output x = Widened(node.input(0)), wide_dy = Widened(dy);
  const Output scale = node.input(1), mean = node.input(3);
  const Output distance = OverRows(wide_dy * (x - mean));
  const Output doffset = OverRows(wide_dy);
  return {LikeX(wide_dy * (scale * inv_std), dy), distance * inv_std, doffset,
          -1.0 * doffset * scale * inv_std, distance * scale};
}

Outputs ApplyGradient(const Node& node, const Outputs& dy) {
  return ApplyGradientWith(node.input(4), node, dy[0]);
}

Outputs InferenceGradient(const Node& node, const Outputs& dy) {
  const Output inv_std = Rsqrt(node.input(4) + node.attrs().Float("epsilon"));
  Outputs dx = ApplyGradientWith(inv_std, node, dy[0]);
  dx[4] = -0.5 * dx[4] * inv_std * inv_std * inv_std;
  return dx;
}

constexpr FixedList<ArgDef, 8> kGradInputs = {{"x"},
                                              {"scale", kComputeOfT},
                                              {"mean", kComputeOfT},
                                              {"inv_std", kComputeOfT},
                                              {"dy"}};
constexpr FixedList<ArgDef, 6> kGradOutputs = {
    {"dx"}, {"dscale", kComputeOfT}, {"doffset", kComputeOfT}};
constexpr FixedList<AttrDef, 10> kEpsilon = {{"epsilon", 1e-5}};

// `spread`: what it is given beside the mean.
constexpr OpDef GivenOp(const char* name, const char* doc, MadeBy made_by,
                        const char* spread, FixedList<AttrDef, 10> attrs,
                        GradientFn gradient) {
  return {.name = name,
          .doc = doc,
          .made_by = made_by,
          .inputs = {{"x"},
                     {"scale", kComputeOfT},
                     {"offset", kComputeOfT},
                     {"mean", kComputeOfT},
                     {spread, kComputeOfT}},
          .attrs = attrs,
          .shape = [](InferContext& c) -> Status {
            SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 4));
            c.SetOutput(0, c.input(0));
            return {};
          },
          .gradient = gradient,
          .inplace = {0},
          .half = HalfRule::kFollow,
          .probes = {{.inputs = {{.shape = {2, 3, 4}},
                                 {.shape = {4}},
                                 {.shape = {4}},
                                 {.shape = {4}},
                                 Positive({4})}}}};
}

constexpr OpDef ApplyOp() {
  OpDef op =
      GivenOp("BatchNormApply",
              "BatchNorm's y once more, from the statistics that it found.",
              MadeBy::kEngine, "inv_std", {}, ApplyGradient);
  op.with_relu = "BatchNormApplyRelu";
  op.with_add_relu = "BatchNormApplyAddRelu";
  return op;
}

constexpr OpDef kNormOps[] = {
    {.name = "BatchNorm",
     .doc = "Normalises each channel by the statistics of the batch.",
     .inputs = {{"x"},
                {"scale", kComputeOfT},
                {"offset", kComputeOfT},
                {"running_mean", kComputeOfT},
                {"running_variance", kComputeOfT}},
     .outputs = {{"y"},
                 {"mean", kComputeOfT},
                 {"inv_std", kComputeOfT},
                 {"new_running_mean", kComputeOfT},
                 {"new_running_variance", kComputeOfT}},
     .attrs = {{"epsilon", 1e-5}, {"momentum", 0.9}},
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 4));
       c.SetOutput(0, c.input(0));
       for (int i = 1; i < 5; ++i) c.SetOutput(i, Channels(c));
       return {};
     },
     .gradient = BatchNormGradient,
     .by_sums = "BatchNormBySums",
     .with_relu = "BatchNormRelu",
     .with_add_relu = "BatchNormAddRelu",
     .again = BatchNormAgain,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {6, 4}},
                            {.shape = {4}},
                            {.shape = {4}},
                            {.shape = {4}},
                            Positive({4})}},
                {.inputs = {{.shape = {2, 3, 2, 3}},
                            {.shape = {3}},
                            {.shape = {3}},
                            {.shape = {3}},
                            Positive({3})},
                 .attrs = {{"epsilon", 1e-2}, {"momentum", 0.5}}}}},
    {.name = "BatchNormGrad",
     .doc = "The gradients of BatchNorm with respect to x, scale and offset.",
     .made_by = MadeBy::kGradients,
     .inputs = kGradInputs,
     .outputs = kGradOutputs,
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 3));
       if (!Compatible(c.input(0), c.input(4))) {
         return InvalidArgument("dy must have x's shape");
       }
       c.SetOutput(0, c.input(0));
       c.SetOutput(1, Channels(c));
       c.SetOutput(2, Channels(c));
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return GradientOfExpression(node, dy, BatchNormGradExpression);
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3, 4}},
                            {.shape = {4}},
                            {.shape = {4}},
                            Positive({4}),
                            {.shape = {2, 3, 4}}}}}},
    GivenOp("BatchNormInference",
            "Normalises each channel by given statistics.", MadeBy::kUsers,
            "variance", kEpsilon, InferenceGradient),
    ApplyOp(),
    {.name = "LayerNorm",
     .doc = "Normalises each row over the last dimension.",
     .inputs = {{"x"}, {"scale", kComputeOfT}, {"offset", kComputeOfT}},
     .outputs = {{"y"}, {"mean", kComputeOfT}, {"inv_std", kComputeOfT}},
     .attrs = kEpsilon,
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 2));
       const Shape& x = c.input(0);
       c.SetOutput(0, x);
       c.SetOutput(1, x.Slice(0, x.rank() - 1));
       c.SetOutput(2, x.Slice(0, x.rank() - 1));
       return {};
     },
     .gradient = LayerNormGradient,
     .half = HalfRule::kFollow,
     .probes =
         {{.inputs = {{.shape = {3, 5}}, {.shape = {5}}, {.shape = {5}}}},
          {.inputs = {{.shape = {2, 2, 9}}, {.shape = {9}}, {.shape = {9}}}}}},
    {.name = "LayerNormGrad",
     .doc = "The gradients of LayerNorm with respect to x, scale and offset.",
     .made_by = MadeBy::kGradients,
     .inputs = kGradInputs,
     .outputs = kGradOutputs,
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 1));
       const Shape& x = c.input(0);
       const Shape rows = x.Slice(0, x.rank() - 1);
       if (!Compatible(rows, c.input(2)) || !Compatible(rows, c.input(3)) ||
           !Compatible(x, c.input(4))) {
         return InvalidArgument(
             "mean and inv_std have one element per row, dy has x's shape");
       }
       c.SetOutput(0, x);
       c.SetOutput(1, Channels(c));
       c.SetOutput(2, Channels(c));
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return GradientOfExpression(node, dy, LayerNormGradExpression);
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3, 5}},
                            {.shape = {5}},
                            {.shape = {2, 3}},
                            Positive({2, 3}),
                            {.shape = {2, 3, 5}}}}}},
};

}  // namespace

std::span<const OpDef> NormOps() {
  return kNormOps;
}

BatchNormOutputs BatchNorm(Operand x, Operand scale, Operand offset,
                           Operand running_mean, Operand running_variance,
                           const BatchNormOptions& options) {
  Node& node = x.graph().Add(
      {"BatchNorm",
       {x, scale, offset, running_mean, running_variance},
       {{"epsilon", options.epsilon}, {"momentum", options.momentum}}});
  return {node.output(0), node.output(1), node.output(2), node.output(3),
          node.output(4)};
}

Output BatchNormInference(Operand x, Operand scale, Operand offset,
                          Operand mean, Operand variance, double epsilon) {
  return x.graph()
      .Add({"BatchNormInference",
            {x, scale, offset, mean, variance},
            {{"epsilon", epsilon}}})
      .output(0);
}

Output LayerNorm(Operand x, Operand scale, Operand offset, double epsilon) {
  return x.graph()
      .Add({"LayerNorm", {x, scale, offset}, {{"epsilon", epsilon}}})
      .output(0);
}

}  // namespace sluice
