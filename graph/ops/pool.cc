#include "graph/ops/pool.h"

#include <fmt/format.h>

#include "engine/semantics/pool_argmax.h"
#include "engine/semantics/window.h"
#include "graph/ops/expression.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// Every window must hold at least one element of the image.
Status CheckPadding(const WindowDim& d) {
  if (d.input == 0 && d.output > 0) {
    return InvalidArgument(
        fmt::format("padding {} and {} around no elements leaves a window "
                    "nothing to look at",
                    d.pad_before, d.pad_after));
  }
  if (d.pad_before < d.window && d.pad_after < d.window) return {};
  return InvalidArgument(
      fmt::format("padding {} and {} leaves a window of {} nothing to look at",
                  d.pad_before, d.pad_after, d.window));
}

Result<Shape> PooledShape(const Node& node, const Shape& x) {
  const std::vector<int64_t>& window = node.attrs().Ints("window");
  if (x.rank() != 4 || window.size() != 2 || window[0] < 1 || window[1] < 1) {
    return InvalidArgument(fmt::format(
        "wanted images [n,h,w,c] and a window of two positive sizes, got x={}",
        x.ToString()));
  }
  SLUICE_ASSIGN_OR_RETURN(const Window2D w,
                          WindowOf(node.attrs(), x, window[0], window[1]));
  SLUICE_RETURN_IF_ERROR(CheckPadding(w.h));
  SLUICE_RETURN_IF_ERROR(CheckPadding(w.w));
  return Shape{x[0], w.h.output, w.w.output, x[3]};
}

Status CheckPooled(const Node& node, const Shape& x, const Shape& pooled) {
  SLUICE_ASSIGN_OR_RETURN(const Shape wanted, PooledShape(node, x));
  if (!Compatible(wanted, pooled)) {
    return InvalidArgument(fmt::format("{} is not the shape {} that x={} gives",
                                       pooled.ToString(), wanted.ToString(),
                                       x.ToString()));
  }
  return {};
}

Status PoolShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y, PooledShape(c.node(), c.input(0)));
  c.SetOutput(0, y);
  return {};
}

// Output 0 has the shape that operand i says, input 0 that of its pools, whose
// batch it has: this alone may be left open.
Status UnpooledShape(InferContext& c, int i) {
  SLUICE_ASSIGN_OR_RETURN(Shape x, FullShapeOperand(c, i, /*first=*/1));
  SLUICE_RETURN_IF_ERROR(CheckPooled(c.node(), x, c.input(0)));
  if (x[0] < 0) x.set(0, c.input(0)[0]);
  c.SetOutput(0, x);
  return {};
}

constexpr FixedList<AttrDef, 10> kPoolAttrs = {
    {"window", AttrType::kInts},
    {"strides", AttrType::kInts},
    {"padding", "VALID"},
    {"explicit_padding", Ints{0, 0, 0, 0}}};

constexpr FixedList<AttrSetting, 8> kPlain = {{"window", Ints{2, 2}},
                                              {"strides", Ints{2, 2}}};
constexpr FixedList<AttrSetting, 8> kOverlapping = {
    {"window", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"padding", "SAME"}};
constexpr FixedList<AttrSetting, 8> kExplicit = {
    {"window", Ints{2, 3}},
    {"strides", Ints{1, 2}},
    {"padding", "EXPLICIT"},
    {"explicit_padding", Ints{1, 0, 0, 2}}};

// Elements of windows of 2x2 and of 3x2, some of none.
constexpr FixedList<double, 8> kPlaces = {0, 3, 1, 2, 255, 3, 0, 2};

constexpr OpDef kPoolOps[] = {
    {.name = "MaxPool",
     .doc = "The largest element of every window of NHWC images; of equal "
            "ones the first has the gradient.",
     .inputs = {{"x"}},
     .attrs = kPoolAttrs,
     .shape = PoolShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {WithAttrsOf(node, "MaxPoolGrad",
                           {node.input(0), node.output(0), dy[0]})};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6, 4, 3}}}, .attrs = kPlain},
                {.inputs = {{.shape = {1, 5, 4, 2}}}, .attrs = kOverlapping},
                {.inputs = {{.shape = {1, 4, 5, 9}}}, .attrs = kExplicit}}},
    {.name = "MaxPoolGrad",
     .doc = "dy where x is the first of its window not below y: the gradient "
            "of y = MaxPool(x).",
     .inputs = {{"x"}, {"y"}, {"dy"}},
     .outputs = {{"dx"}},
     .attrs = kPoolAttrs,
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckPooled(c.node(), c.input(0), c.input(1)));
       SLUICE_RETURN_IF_ERROR(CheckPooled(c.node(), c.input(0), c.input(2)));
       c.SetOutput(0, c.input(0));
       return {};
     },
     .gradient = [](const Node& node, const Outputs& ddx) -> Outputs {
       return {Output(), Output(),
               WithAttrsOf(node, "MaxPoolGradGrad",
                           {node.input(0), node.input(1), ddx[0]})};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6, 4, 3}},
                            {.shape = {2, 3, 2, 3}, .values = {0}},
                            {.shape = {2, 3, 2, 3}}},
                 .attrs = kPlain},
                {.inputs = {{.shape = {1, 5, 4, 9}},
                            {.shape = {1, 3, 4, 9}, .values = {0}},
                            {.shape = {1, 3, 4, 9}}},
                 .attrs = kOverlapping}}},
    {.name = "MaxPoolGradGrad",
     .doc = "The elements of g where x is the first of its window not below "
            "y, or 0.",
     .made_by = MadeBy::kGradients,
     .inputs = {{"x"}, {"y"}, {"g"}},
     .attrs = kPoolAttrs,
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckPooled(c.node(), c.input(0), c.input(1)));
       if (!Compatible(c.input(0), c.input(2))) {
         return InvalidArgument(fmt::format("g={} must have x's shape {}",
                                            c.input(2).ToString(),
                                            c.input(0).ToString()));
       }
       c.SetOutput(0, c.input(1));
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Output(), Output(),
               WithAttrsOf(node, "MaxPoolGrad",
                           {node.input(0), node.input(1), dy[0]})};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6, 4, 3}},
                            {.shape = {2, 3, 2, 3}, .values = {0}},
                            {.shape = {2, 6, 4, 3}}},
                 .attrs = kPlain}}},
    {.name = "MaxPoolWithArgmax",
     .doc = "MaxPool, and of each result which element of its window it is: "
            "the first of equal ones, row by row, padding counted; 255 where "
            "it is NaN.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .outputs = {{"y"}, {"argmax", "uint8"}},
     .attrs = kPoolAttrs,
     .shape = [](InferContext& c) -> Status {
       const std::vector<int64_t>& window = c.node().attrs().Ints("window");
       SLUICE_ASSIGN_OR_RETURN(const Shape y,
                               PooledShape(c.node(), c.input(0)));
       if (window[0] * window[1] > kNoPoolElement) {
         return InvalidArgument(
             fmt::format("a window of {}x{} has more than {} elements",
                         window[0], window[1], kNoPoolElement));
       }
       c.SetOutput(0, y);
       c.SetOutput(1, y);
       return {};
     },
     .gradient = NotDifferentiable,
     .probes = {{.inputs = {{.shape = {2, 6, 4, 3}}}, .attrs = kPlain},
                {.inputs = {{.shape = {1, 5, 4, 18}}}, .attrs = kOverlapping},
                {.inputs = {{.shape = {1, 4, 5, 9}}}, .attrs = kExplicit}}},
    {.name = "MaxPoolGradWithArgmax",
     .doc = "dy where MaxPoolWithArgmax found its largest: the gradient of its "
            "first result with respect to x, whose shape is given.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"dy"}, {"argmax", "uint8"}, {"x_shape", "int64"}},
     .outputs = {{"dx"}},
     .attrs = kPoolAttrs,
     .shape = [](InferContext& c) -> Status {
       if (!Compatible(c.input(0), c.input(1))) {
         return InvalidArgument(fmt::format("argmax={} must have dy's shape {}",
                                            c.input(1).ToString(),
                                            c.input(0).ToString()));
       }
       return UnpooledShape(c, 2);
     },
     .gradient = NotDifferentiable,
     .probes = {{.inputs = {{.shape = {2, 3, 2, 3}},
                            {.shape = {2, 3, 2, 3}, .values = kPlaces},
                            {.shape = {4}, .values = {2, 6, 4, 3}}},
                 .attrs = kPlain},
                {.inputs = {{.shape = {1, 3, 4, 18}},
                            {.shape = {1, 3, 4, 18}, .values = kPlaces},
                            {.shape = {4}, .values = {1, 5, 4, 18}}},
                 .attrs = kOverlapping}}},
    {.name = "AvgPool",
     .doc = "The mean of every window of NHWC images, without the padding.",
     .inputs = {{"x"}},
     .attrs = kPoolAttrs,
     .shape = PoolShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {
           WithAttrsOf(node, "AvgPoolGrad", {dy[0], ShapeOf(node.input(0))})};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 6, 4, 3}}}, .attrs = kPlain},
                {.inputs = {{.shape = {1, 5, 4, 2}}}, .attrs = kOverlapping},
                {.inputs = {{.shape = {1, 4, 5, 9}}}, .attrs = kExplicit}}},
    {.name = "AvgPoolGrad",
     .doc = "The gradient of AvgPool with respect to x, whose shape is given.",
     .inputs = {{"dy"}, {"x_shape", "int64"}},
     .outputs = {{"dx"}},
     .attrs = kPoolAttrs,
     .shape = [](InferContext& c) { return UnpooledShape(c, 1); },
     .gradient = [](const Node& node, const Outputs& ddx) -> Outputs {
       return {WithAttrsOf(node, "AvgPool", {ddx[0]}), Output()};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3, 2, 3}},
                            {.shape = {4}, .values = {2, 6, 4, 3}}},
                 .attrs = kPlain},
                {.inputs = {{.shape = {1, 3, 4, 2}},
                            {.shape = {4}, .values = {1, 5, 4, 2}}},
                 .attrs = kOverlapping}}},
};

Output Pool(const char* op, std::vector<Operand> inputs,
            const PoolOptions& options) {
  Graph& graph = inputs[0].graph();
  Attributes attrs = WindowAttributes(options);
  attrs.Set("window", ToInts(options.window));
  return graph.Add({op, std::move(inputs), std::move(attrs)}).output(0);
}

}  // namespace

std::span<const OpDef> PoolOps() {
  return kPoolOps;
}

Output MaxPool(Operand x, const PoolOptions& options) {
  return Pool("MaxPool", {x}, options);
}
Output MaxPoolGrad(Operand x, Operand y, Operand dy,
                   const PoolOptions& options) {
  return Pool("MaxPoolGrad", {x, y, dy}, options);
}
Output AvgPool(Operand x, const PoolOptions& options) {
  return Pool("AvgPool", {x}, options);
}
Output AvgPoolGrad(Operand dy, Operand x_shape, const PoolOptions& options) {
  return Pool("AvgPoolGrad", {dy, x_shape}, options);
}
Output GlobalAvgPool(Operand x, bool keep_dims) {
  if (x.tensor().shape().rank() != 4) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("GlobalAvgPool: wanted images [n,h,w,c], got {} ({})",
                    x.tensor().shape().ToString(),
                    FormatLocation(x.location())));
  }
  return Mean(x, {1, 2}, keep_dims);
}

}  // namespace sluice
