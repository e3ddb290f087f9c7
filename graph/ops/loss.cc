#include "graph/ops/loss.h"

#include <fmt/format.h>

#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/expression.h"
#include "graph/ops/index.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// One class per row, not a distribution over them.
bool IsSparse(const Node& node) {
  return IsInteger(node.input(1).dtype());
}

Status CheckLabels(InferContext& c) {
  const double smoothing = c.attrs().Float("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    return InvalidArgument(
        fmt::format("label_smoothing must lie in [0, 1], got {}", smoothing));
  }
  const Shape& logits = c.input(0);
  if (logits.rank() < 1 || logits[-1] == 0) {
    return InvalidArgument(
        fmt::format("logits need classes, got {}", logits.ToString()));
  }
  const Shape wanted =
      IsSparse(c.node()) ? logits.Slice(0, logits.rank() - 1) : logits;
  if (!Compatible(wanted, c.input(1))) {
    return InvalidArgument(fmt::format(
        "logits={} want labels of shape {}, got {}", logits.ToString(),
        wanted.ToString(), c.input(1).ToString()));
  }
  return {};
}

Status CrossEntropyShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CheckLabels(c));
  const Shape& logits = c.input(0);
  const Shape rows = logits.Slice(0, logits.rank() - 1);
  for (int i = 0; i < 3; ++i) c.SetOutput(i, rows);
  return {};
}

// Inputs logits, labels and dloss; dlogits beside the forward op's outputs.
Status CrossEntropyWithGradShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CrossEntropyShape(c));
  if (!Compatible(c.output(0), c.input(2))) {
    return InvalidArgument("dloss has one element per row");
  }
  c.SetOutput(3, c.input(0));
  return {};
}

Status CrossEntropyGradShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CheckLabels(c));
  const Shape& logits = c.input(0);
  const Shape rows = logits.Slice(0, logits.rank() - 1);
  for (int i = 2; i < 5; ++i) {
    if (!Compatible(rows, c.input(i))) {
      return InvalidArgument("max, scale and dloss have one element per row");
    }
  }
  c.SetOutput(0, logits);
  return {};
}

// The labels after smoothing, [..., classes].
Output Smoothed(const Node& node, const Output& logits, const Output& labels) {
  const double s = node.attrs().Float("label_smoothing");
  const int64_t classes = logits.shape()[-1];
  if (classes < 0) {
    throw Error(Code::kInvalidArgument,
                node.Describe() +
                    ": differentiating this twice needs a known "
                    "number of classes");
  }
  const Output dense = IsSparse(node)
                           ? OneHot(labels, classes, {.dtype = logits.dtype()})
                           : labels;
  return s == 0 ? dense : dense * (1 - s) + s / static_cast<double>(classes);
}

// softmax(logits) from what the loss keeps.
Output Probabilities(const Output& logits, const Output& max,
                     const Output& scale) {
  return Exp(logits - ExpandDims(max, -1)) * ExpandDims(scale, -1);
}

// dlogits = dloss (softmax(logits) sum(labels) - labels), labels smoothed.
Outputs CrossEntropyGradExpression(const Node& node, const Outputs& in) {
  const Output logits = in[0];
  const Output labels = Smoothed(node, logits, in[1]);
  const Output probabilities = Probabilities(logits, in[2], in[3]);
  return {ExpandDims(in[4], -1) *
          (probabilities * Sum(labels, {-1}, true) - labels)};
}

// The gradient with respect to the logits that max and scale have; dmax and
// dscale may be missing. Only gradients of gradients ask for it.
Output SumsGradient(const Node& node, const Output& dmax,
                    const Output& dscale) {
  const Output logits = node.input(0);
  const Output max = node.output(1), scale = node.output(2);
  Output of_largest = dmax, of_all;
  if (dscale.valid()) {
    const Output g = dscale * scale;
    of_largest = dmax.valid() ? dmax + g : g;
    of_all = Probabilities(logits, max, scale) * ExpandDims(g, -1);
  }
  const Output largest = Equal(logits, ExpandDims(max, -1));
  const Output dlogits =
      SharedByTied(largest, ExpandDims(of_largest, -1), {-1});
  return of_all.valid() ? dlogits - of_all : dlogits;
}

Outputs CrossEntropyGradient(const Node& node, const Outputs& dy) {
  const Output logits = node.input(0), labels = node.input(1);
  const Output max = node.output(1), scale = node.output(2);
  Output dlogits, dlabels;
  if (dy[0].valid()) {
    dlogits = node.graph()
                  .Add({node.op().gradient_op,
                        {logits, labels, max, scale, dy[0]},
                        node.attrs()})
                  .output(0);
    if (!IsSparse(node)) {
      const double keep = 1 - node.attrs().Float("label_smoothing");
      const Output minus_log_p =
          ExpandDims(-Log(scale), -1) - (logits - ExpandDims(max, -1));
      dlabels = minus_log_p * ExpandDims(keep * dy[0], -1);
    }
  }
  if (dy[1].valid() || dy[2].valid()) {
    const Output g = SumsGradient(node, dy[1], dy[2]);
    dlogits = dlogits.valid() ? dlogits + g : g;
  }
  return {dlogits, dlabels};
}

constexpr FixedList<AttrDef, 10> kSmoothing = {{"label_smoothing", 0.0}};
constexpr ProbeInput kLogits = {.shape = {4, 5}, .lo = -3, .hi = 3};
constexpr ProbeInput kProbabilities = {.shape = {4, 5}, .lo = 0.1, .hi = 1};
constexpr ProbeInput kClasses = {.shape = {4}, .values = {2, 0, 4, 2}};
constexpr FixedList<AttrSetting, 8> kSmooth = {{"label_smoothing", 0.1}};
// Far from 0, where exp overflows and float32 has a few digits left.
constexpr ProbeInput kFarLogits = {.shape = {4, 5}, .lo = 997, .hi = 1003};
constexpr ProbeInput kMaxima = {.shape = {4}, .lo = 1, .hi = 3};
constexpr ProbeInput kScales = {.shape = {4}, .lo = 0.3, .hi = 1};

// The op's outputs: its gradient needs max and scale.
constexpr FixedList<ArgDef, 6> kLossOutputs = {{"loss"}, {"max"}, {"scale"}};

// What labels are: probabilities, of the logits' shape, or a class for each
// row.
struct Labels {
  ArgDef arg;
  FixedList<TypeVar, 3> types;
  ProbeInput probe;
};
constexpr Labels kDense = {{"labels"}, {{"T", kFloating}}, kProbabilities};
constexpr Labels kSparse = {
    {"labels", "L"}, {{"T", kFloating}, {"L", kIndex}}, kClasses};

constexpr OpDef CrossEntropyOp(const char* name, const char* gradient_op,
                               const char* with_gradient, const char* doc,
                               const Labels& labels) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"logits"}, labels.arg},
          .outputs = kLossOutputs,
          .types = labels.types,
          .attrs = kSmoothing,
          .shape = CrossEntropyShape,
          .gradient = CrossEntropyGradient,
          .gradient_op = gradient_op,
          .with_gradient = with_gradient,
          .probes = {{.inputs = {kLogits, labels.probe}},
                     {.inputs = {kLogits, labels.probe}, .attrs = kSmooth},
                     {.inputs = {kFarLogits, labels.probe}, .attrs = kSmooth}}};
}

constexpr OpDef CrossEntropyGradOp(const char* name, const char* doc,
                                   const Labels& labels) {
  return {
      .name = name,
      .doc = doc,
      .made_by = MadeBy::kGradients,
      .inputs = {{"logits"}, labels.arg, {"max"}, {"scale"}, {"dloss"}},
      .outputs = {{"dlogits"}},
      .types = labels.types,
      .attrs = kSmoothing,
      .shape = CrossEntropyGradShape,
      .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
        return GradientOfExpression(node, dy, CrossEntropyGradExpression);
      },
      .inplace = {0},
      .probes = {
          {.inputs = {kLogits, labels.probe, kMaxima, kScales, {.shape = {4}}},
           .attrs = kSmooth}}};
}

// The fusion pass makes these, after gradients were taken.
constexpr OpDef CrossEntropyWithGradOp(const char* name, const char* doc,
                                       const Labels& labels) {
  constexpr ProbeInput kDloss = {.shape = {4}};
  return {
      .name = name,
      .doc = doc,
      .made_by = MadeBy::kEngine,
      .inputs = {{"logits"}, labels.arg, {"dloss"}},
      .outputs = {{"loss"}, {"max"}, {"scale"}, {"dlogits"}},
      .types = labels.types,
      .attrs = kSmoothing,
      .shape = CrossEntropyWithGradShape,
      .gradient = NotDifferentiable,
      .probes = {{.inputs = {kLogits, labels.probe, kDloss}},
                 {.inputs = {kLogits, labels.probe, kDloss}, .attrs = kSmooth},
                 {.inputs = {kFarLogits, labels.probe, kDloss}}}};
}

constexpr OpDef kLossOps[] = {
    CrossEntropyOp("SoftmaxCrossEntropy", "SoftmaxCrossEntropyGrad",
                   "SoftmaxCrossEntropyWithGrad",
                   "-sum(labels * log_softmax(logits)) per row; "
                   "softmax(logits) is scale * exp(logits - max).",
                   kDense),
    CrossEntropyGradOp(
        "SoftmaxCrossEntropyGrad",
        "The gradient of SoftmaxCrossEntropy with respect to the logits.",
        kDense),
    CrossEntropyOp("SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad",
                   "SparseSoftmaxCrossEntropyWithGrad",
                   "SoftmaxCrossEntropy with one class per row as the label.",
                   kSparse),
    CrossEntropyGradOp("SparseSoftmaxCrossEntropyGrad",
                       "The gradient of SparseSoftmaxCrossEntropy with respect "
                       "to the logits.",
                       kSparse),
    CrossEntropyWithGradOp(
        "SoftmaxCrossEntropyWithGrad",
        "SoftmaxCrossEntropy and its gradient with respect to the logits.",
        kDense),
    CrossEntropyWithGradOp("SparseSoftmaxCrossEntropyWithGrad",
                           "SparseSoftmaxCrossEntropy and its gradient with "
                           "respect to the logits.",
                           kSparse),
    {.name = "SigmoidCrossEntropy",
     .doc = "max(x, 0) - x * label + log(1 + exp(-|x|)) of logits x.",
     .inputs = {{"logits"}, {"labels"}},
     .outputs = {{"loss"}},
     .shape = [](InferContext& c) -> Status {
       if (!Compatible(c.input(0), c.input(1))) {
         return InvalidArgument(
             fmt::format("logits={} and labels={} must have one shape",
                         c.input(0).ToString(), c.input(1).ToString()));
       }
       c.SetOutput(0, c.input(0));
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       const Output logits = node.input(0), labels = node.input(1);
       return {(Sigmoid(logits) - labels) * dy[0], -logits * dy[0]};
     },
     .elementwise = true,
     .inplace = {0, 1},
     .probes = {{.inputs = {kLogits, kProbabilities}}}},
    {.name = "L2Loss",
     .doc = "sum(x^2) / 2.",
     .inputs = {{"x"}},
     .outputs = {{"loss"}},
     .shape = ScalarShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {node.input(0) * dy[0]};
     },
     .probes = {{.inputs = {{.shape = {3, 7}}}}}},
    {.name = "SquaredNorm",
     .doc = "sum(x^2) in float64, which holds the squares of all floats.",
     .inputs = {{"x"}},
     .outputs = {{"y", "float64"}},
     .shape = ScalarShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       const Output x = node.input(0);
       return {x * CastTo(2 * dy[0], x.dtype())};
     },
     .probes = {{.inputs = {{.shape = {3, 7}}}}}},
};

Output CrossEntropy(const char* op, const Operand& logits,
                    const Operand& labels, const CrossEntropyOptions& options) {
  return logits.graph()
      .Add({op,
            {logits, labels},
            {{"label_smoothing", options.label_smoothing}}})
      .output(0);
}

}  // namespace

std::span<const OpDef> LossOps() {
  return kLossOps;
}

Output SoftmaxCrossEntropy(Operand logits, Operand labels,
                           const CrossEntropyOptions& options) {
  return CrossEntropy("SoftmaxCrossEntropy", logits, labels, options);
}
Output SparseSoftmaxCrossEntropy(Operand logits, Operand labels,
                                 const CrossEntropyOptions& options) {
  return CrossEntropy("SparseSoftmaxCrossEntropy", logits, labels, options);
}
Output SigmoidCrossEntropy(Operand logits, Operand labels) {
  return logits.graph()
      .Add({"SigmoidCrossEntropy", {logits, labels}})
      .output(0);
}
Operand CheckTargets(std::string_view loss, const Operand& predictions,
                     const Operand& targets) {
  if (predictions.is_number() || targets.is_number()) return targets;
  const Shape& given = predictions.tensor().shape();
  const Shape& wanted = targets.tensor().shape();
  if (wanted.scalar()) return targets;
  if (Compatible(given, wanted)) {
    return {EnsureShapeOf(targets, predictions.tensor()), targets.location()};
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("{}: predictions={} and targets={} must have one shape ({})",
                  loss, given.ToString(), wanted.ToString(),
                  FormatLocation(predictions.location())));
}

Output MeanSquaredError(Operand predictions, Operand targets) {
  return Mean(SquaredDifference(
      predictions, CheckTargets("MeanSquaredError", predictions, targets)));
}
Output L2Loss(Operand x) {
  return x.graph().Add({"L2Loss", {x}}).output(0);
}
Output SquaredNorm(Operand x) {
  return x.graph().Add({"SquaredNorm", {x}}).output(0);
}

}  // namespace sluice
