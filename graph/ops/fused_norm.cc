// Batch normalisation together with the addition and the ReLU behind it, and
// the gradients of that. The fusion pass makes these nodes
// (graph/passes/fuse_norm.cc); and batch normalisation, fused or not, by the
// sums that a convolution has made of x (graph/passes/fuse_statistics.cc). Both
// run after gradients were taken, so these have none of their own.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ceil_div.h"
#include "graph/graph.h"
#include "graph/ops/channels.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// One bit for each element, eight to the byte: element i is bit i % 8 of byte
// i / 8.
Shape MaskShape(const Shape& x) {
  const int64_t elements = x.concrete() ? x.elements() : kUnknown;
  return {elements == kUnknown ? kUnknown : CeilDiv(elements, 8)};
}

Status RequireShape(InferContext& c, int input, const Shape& wanted) {
  if (Compatible(wanted, c.input(input))) return {};
  return InvalidArgument(fmt::format("input {} has shape {}, wanted {}", input,
                                     c.input(input).ToString(),
                                     wanted.ToString()));
}

// Of the operands but the sums, which are the last two.
Status OperandShapes(InferContext& c, int operands) {
  SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 4));
  if (operands > 5) {
    SLUICE_RETURN_IF_ERROR(RequireShape(c, 5, c.input(0)));
  }
  c.SetOutput(0, c.input(0));
  return {};
}

Status ForwardShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(OperandShapes(c, c.num_inputs()));
  const int mask = c.node().op().outputs.size() - 1;
  for (int i = 1; i < mask; ++i) c.SetOutput(i, Channels(c));
  c.SetOutput(mask, MaskShape(c.input(0)));
  return {};
}

Status BySumsShape(InferContext& c) {
  const int operands = c.num_inputs() - 2;
  SLUICE_RETURN_IF_ERROR(OperandShapes(c, operands));
  SLUICE_RETURN_IF_ERROR(CheckChannels(c, operands, operands + 1));
  for (int i = 1; i < 5; ++i) c.SetOutput(i, Channels(c));
  if (c.node().op().relu_mask) c.SetOutput(5, MaskShape(c.input(0)));
  return {};
}

Status GradShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CheckChannels(c, 1, 3));
  SLUICE_RETURN_IF_ERROR(RequireShape(c, 4, MaskShape(c.input(0))));
  if (c.num_inputs() > 7) {
    return InvalidArgument(fmt::format(
        "dy is one term or the sum of two, got {}", c.num_inputs() - 5));
  }
  for (int i = 5; i < c.num_inputs(); ++i) {
    SLUICE_RETURN_IF_ERROR(RequireShape(c, i, c.input(0)));
  }
  c.SetOutput(0, c.input(0));
  c.SetOutput(1, Channels(c));
  c.SetOutput(2, Channels(c));
  if (c.node().op().outputs.size() > 3) c.SetOutput(3, c.input(0));
  return {};
}

// Offsets so large that the sign of y does not hang on rounding.
constexpr ProbeInput kOffset = {.shape = {8},
                                .values = {3, -3, 4, 5, -4, 3, -5, -3}};
constexpr ProbeInput kOffset3 = {.shape = {3}, .values = {3, -3, 4}};
constexpr ProbeInput kScale = {.shape = {8}, .lo = -0.5, .hi = 0.5};
constexpr ProbeInput kImages = {.shape = {2, 3, 3, 8}};
constexpr ProbeInput kOddImages = {.shape = {2, 3, 2, 3}};

constexpr ProbeInput kForwardOperands[] = {
    kImages, kScale, kOffset, {.shape = {8}}, Positive({8}), kImages};
constexpr ProbeInput kOddForwardOperands[] = {
    kOddImages,    {.shape = {3}, .lo = -0.5, .hi = 0.5},
    kOffset3,      {.shape = {3}},
    Positive({3}), kOddImages};

constexpr ArgDef kForwardInputs[] = {{"x"},
                                     {"scale", kComputeOfT},
                                     {"offset", kComputeOfT},
                                     {"running_mean", kComputeOfT},
                                     {"running_variance", kComputeOfT},
                                     {"addend"}};
constexpr ArgDef kApplyInputs[] = {{"x"},
                                   {"scale", kComputeOfT},
                                   {"offset", kComputeOfT},
                                   {"mean", kComputeOfT},
                                   {"inv_std", kComputeOfT},
                                   {"addend"}};

// Of BatchNorm, whose operands are `inputs`, or of BatchNormApply; an addend
// is the last operand.
constexpr OpDef OpWithRelu(const char* name, const char* doc,
                           const ArgDef* inputs, bool add) {
  const int operands = add ? 6 : 5;
  return {.name = name,
          .doc = doc,
          .made_by = MadeBy::kEngine,
          .inputs = {inputs, operands},
          .outputs = {{"y"}, {"mask", "uint8"}},
          .shape = ForwardShape,
          .gradient = NotDifferentiable,
          .inplace = add ? FixedList<int, 4>{5, 0} : FixedList<int, 4>{0},
          .relu_mask = true,
          .probes = {{.inputs = {kForwardOperands, operands}},
                     {.inputs = {kOddForwardOperands, operands}}}};
}

constexpr OpDef ForwardOp(const char* name, const char* doc, bool add) {
  OpDef op = OpWithRelu(name, doc, kForwardInputs, add);
  op.outputs = {{"y"},
                {"mean", kComputeOfT},
                {"inv_std", kComputeOfT},
                {"new_running_mean", kComputeOfT},
                {"new_running_variance", kComputeOfT},
                {"mask", "uint8"}};
  op.attrs = {{"epsilon", 1e-5}, {"momentum", 0.9}};
  op.probes = {{.inputs = {kForwardOperands, add ? 6 : 5}},
               {.inputs = {kOddForwardOperands, add ? 6 : 5},
                .attrs = {{"epsilon", 1e-2}, {"momentum", 0.5}}}};
  return op;
}

// Of 18 and of 12 rows; those of the fourth and of the second channel say that
// the mean is large beside the deviation.
constexpr ProbeInput kSums[] = {
    {.shape = {8}, .values = {2, -3, 0, 18, 5, -1, 4, 1}},
    {.shape = {8}, .values = {6, 7, 5, 18, 9, 6, 8, 5}}};
constexpr ProbeInput kOddSums[] = {{.shape = {3}, .values = {1, 12, -2}},
                                   {.shape = {3}, .values = {5, 12, 4}}};

constexpr Probe ProbeBySums(const ProbeInput* operands, const ProbeInput* sums,
                            bool add) {
  const int n = add ? 6 : 5;
  ProbeInput all[8];
  std::copy_n(sums, 2, std::copy_n(operands, n, all));
  return {.inputs = {all, n + 2}};
}

// BatchNorm, with a ReLU and an addend or not, whose last two inputs are sums.
constexpr OpDef BySumsOp(const char* name, const char* doc, bool relu,
                         bool add) {
  constexpr ArgDef kSumsOfX[] = {{"sum", kComputeOfT},
                                 {"squares", kComputeOfT}};
  const int n = add ? 6 : 5;
  ArgDef inputs[8];
  std::copy_n(kSumsOfX, 2, std::copy_n(kForwardInputs, n, inputs));
  OpDef op = ForwardOp(name, doc, add);
  op.inputs = {inputs, n + 2};
  if (!relu) op.outputs = {op.outputs.begin(), 5};
  op.relu_mask = relu;
  op.shape = BySumsShape;
  op.probes = {ProbeBySums(kForwardOperands, kSums, add),
               ProbeBySums(kOddForwardOperands, kOddSums, add)};
  return op;
}

constexpr OpDef WithBySums(OpDef op, const char* by_sums) {
  op.by_sums = by_sums;
  return op;
}

// mask: elements of 0 to 255, so that some bits are set and some not.
constexpr ProbeInput kMask = {.shape = {18},
                              .values = {1, 200, 77, 0, 255, 3, 90, 129}};
constexpr ProbeInput kOddMask = {.shape = {5}, .values = {9, 201, 78, 255, 6}};

constexpr Probe GradProbe() {
  return {.inputs = {kImages,
                     kScale,
                     {.shape = {8}},
                     Positive({8}),
                     kMask,
                     kImages,
                     kImages}};
}
constexpr Probe OneTermGradProbe() {
  return {.inputs = {
              kImages, kScale, {.shape = {8}}, Positive({8}), kMask, kImages}};
}
constexpr Probe OddGradProbe() {
  return {.inputs = {kOddImages,
                     {.shape = {3}},
                     {.shape = {3}},
                     Positive({3}),
                     kOddMask,
                     kOddImages}};
}

constexpr OpDef GradOp(const char* name, const char* doc,
                       FixedList<ArgDef, 6> outputs) {
  return {.name = name,
          .doc = doc,
          .made_by = MadeBy::kEngine,
          .inputs = {{"x"},
                     {"scale", kComputeOfT},
                     {"mean", kComputeOfT},
                     {"inv_std", kComputeOfT},
                     {"mask", "uint8"},
                     {.name = "dy", .variadic = true}},
          .outputs = outputs,
          .shape = GradShape,
          .gradient = NotDifferentiable,
          .inplace = {5, 6},
          .probes = {GradProbe(), OneTermGradProbe(), OddGradProbe()}};
}

constexpr OpDef kFusedNormOps[] = {
    WithBySums(
        ForwardOp("BatchNormRelu",
                  "max(0, BatchNorm(x)), and a bit for each positive result.",
                  /*add=*/false),
        "BatchNormReluBySums"),
    WithBySums(
        ForwardOp("BatchNormAddRelu",
                  "max(0, BatchNorm(x) + addend), and a bit for each positive "
                  "result.",
                  /*add=*/true),
        "BatchNormAddReluBySums"),
    BySumsOp("BatchNormBySums",
             "BatchNorm with the sums of each channel of x, and of its "
             "squares, given; by x itself where they say too little.",
             /*relu=*/false, /*add=*/false),
    BySumsOp("BatchNormReluBySums",
             "BatchNormRelu with the sums of each channel given, as of "
             "BatchNormBySums.",
             /*relu=*/true, /*add=*/false),
    BySumsOp("BatchNormAddReluBySums",
             "BatchNormAddRelu with the sums of each channel given, as of "
             "BatchNormBySums.",
             /*relu=*/true, /*add=*/true),
    OpWithRelu("BatchNormApplyRelu",
               "max(0, BatchNormApply(x)), and a bit for each positive result.",
               kApplyInputs, /*add=*/false),
    OpWithRelu("BatchNormApplyAddRelu",
               "max(0, BatchNormApply(x) + addend), and a bit for each "
               "positive result.",
               kApplyInputs, /*add=*/true),
    GradOp("BatchNormReluGrad",
           "The gradients of BatchNormRelu; dy is the sum of its terms.",
           {{"dx"}, {"dscale", kComputeOfT}, {"doffset", kComputeOfT}}),
    GradOp("BatchNormAddReluGrad",
           "The gradients of BatchNormAddRelu; dy is the sum of its terms.",
           {{"dx"},
            {"dscale", kComputeOfT},
            {"doffset", kComputeOfT},
            {"daddend"}}),
};

}  // namespace

std::span<const OpDef> FusedNormOps() {
  return kFusedNormOps;
}

}  // namespace sluice
