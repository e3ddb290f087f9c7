#include "graph/ops/matmul.h"

#include <fmt/format.h>

#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// The shape of op(a) * op(b) over the last two dimensions.
Status ProductShape(InferContext& c) {
  const Shape& a = c.input(0);
  const Shape& b = c.input(1);
  const bool batched = c.node().Is("BatchMatMul");
  if (batched ? a.rank() < 2 || b.rank() < 2 : a.rank() != 2 || b.rank() != 2) {
    return InvalidArgument(fmt::format("wanted matrices, got a={} b={}",
                                       a.ToString(), b.ToString()));
  }
  const bool ta = c.attrs().Bool("transpose_a");
  const bool tb = c.attrs().Bool("transpose_b");
  const int64_t inner_a = a[ta ? -2 : -1];
  const int64_t inner_b = b[tb ? -1 : -2];
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
    return InvalidArgument(fmt::format("inner dimensions differ: a={}{} b={}{}",
                                       a.ToString(), ta ? "^T" : "",
                                       b.ToString(), tb ? "^T" : ""));
  }
  SLUICE_ASSIGN_OR_RETURN(Shape out, BroadcastShapes(a.Slice(0, a.rank() - 2),
                                                     b.Slice(0, b.rank() - 2)));
  out.push_back(a[ta ? -1 : -2]);
  out.push_back(b[tb ? -2 : -1]);
  c.SetOutput(0, out);
  return {};
}

Output Product(const char* op, const Operand& a, const Operand& b,
               const MatMulOptions& options) {
  return a.graph()
      .Add({op,
            {a, b},
            {{"transpose_a", options.transpose_a},
             {"transpose_b", options.transpose_b}}})
      .output(0);
}

// The bias is a vector over y's last dimension, an addend has y's shape.
Status BiasedShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(ProductShape(c));
  const Shape y = c.output(0);
  const Shape wanted = c.node().Is("MatMulBias") ? Shape{y[-1]} : y;
  if (!Compatible(wanted, c.input(2))) {
    return InvalidArgument(fmt::format(
        "'{}' has shape {}, wanted {}", c.node().op().inputs[2].name,
        c.input(2).ToString(), wanted.ToString()));
  }
  return {};
}

// With A = op(a), B = op(b): dA = dy B^T, dB = A^T dy, each transposed when
// the operand was. Broadcast batch dimensions are summed away.
Outputs ProductGradient(const Node& node, const Outputs& dy) {
  const char* op = node.op().name;
  const Output a = node.input(0), b = node.input(1), g = dy[0];
  const bool ta = node.attrs().Bool("transpose_a");
  const bool tb = node.attrs().Bool("transpose_b");
  const Output da =
      ta ? Product(op, b, g, {.transpose_a = tb, .transpose_b = true})
         : Product(op, g, b, {.transpose_b = !tb});
  const Output db =
      tb ? Product(op, g, a, {.transpose_a = true, .transpose_b = ta})
         : Product(op, a, g, {.transpose_a = !ta});
  if (node.Is("MatMul")) return {da, db};
  return {SumToShapeOf(da, a), SumToShapeOf(db, b)};
}

int64_t MultiplyAdds(const Node& node) {
  const int inner = node.attrs().Bool("transpose_a") ? -2 : -1;
  return node.output(0).shape().elements() * node.input(0).shape()[inner];
}

constexpr OpDef kMatMulOps[] = {
    {.name = "MatMul",
     .doc = "Matrix product of a and b, each transposed on request.",
     .inputs = {{"a"}, {"b"}},
     .attrs = {{"transpose_a", false}, {"transpose_b", false}},
     .shape = ProductShape,
     .gradient = ProductGradient,
     .scales_channels =
         [](const Node& node) { return !node.attrs().Bool("transpose_b"); },
     .multiply_adds = MultiplyAdds,
     .half = HalfRule::kPrefer,
     .probes = {{.inputs = {{.shape = {3, 5}}, {.shape = {5, 4}}}},
                {.inputs = {{.shape = {5, 3}}, {.shape = {5, 4}}},
                 .attrs = {{"transpose_a", true}}},
                {.inputs = {{.shape = {3, 5}}, {.shape = {4, 5}}},
                 .attrs = {{"transpose_b", true}}},
                {.inputs = {{.shape = {5, 3}}, {.shape = {4, 5}}},
                 .attrs = {{"transpose_a", true}, {"transpose_b", true}}}}},
    {.name = "BatchMatMul",
     .doc = "Matrix products over the last two dimensions; others broadcast.",
     .inputs = {{"a"}, {"b"}},
     .attrs = {{"transpose_a", false}, {"transpose_b", false}},
     .shape = ProductShape,
     .gradient = ProductGradient,
     .multiply_adds = MultiplyAdds,
     .half = HalfRule::kPrefer,
     .probes = {{.inputs = {{.shape = {2, 3, 5}}, {.shape = {2, 5, 4}}}},
                {.inputs = {{.shape = {2, 1, 5, 3}}, {.shape = {3, 4, 5}}},
                 .attrs = {{"transpose_a", true}, {"transpose_b", true}}}}},
    // The fusion pass makes the next two, after gradients were taken.
    {.name = "MatMulBias",
     .doc = "MatMul + bias along the last dimension; relu: max(0, that).",
     .made_by = MadeBy::kEngine,
     .inputs = {{"a"}, {"b"}, {"bias"}},
     .attrs = {{"transpose_a", false}, {"transpose_b", false}, {"relu", false}},
     .shape = BiasedShape,
     .gradient = NotDifferentiable,
     .multiply_adds = MultiplyAdds,
     .probes =
         {{.inputs = {{.shape = {3, 5}}, {.shape = {5, 4}}, {.shape = {4}}},
           .attrs = {{"relu", true}}},
          {.inputs = {{.shape = {5, 3}}, {.shape = {4, 5}}, {.shape = {4}}},
           .attrs = {{"transpose_a", true}, {"transpose_b", true}}},
          // NaN stays, also where a library's ReLU is what the result goes
          // through.
          {.inputs = {{.shape = {3, 5}},
                      {.shape = {5, 4}},
                      {.shape = {4},
                       .values = {__builtin_nan(""), 9, -9, __builtin_inf()}}},
           .attrs = {{"relu", true}}}}},
    {.name = "MatMulAdd",
     .doc = "MatMul + addend, best in the addend's place.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"a"}, {"b"}, {"addend"}},
     .attrs = {{"transpose_a", false}, {"transpose_b", false}},
     .shape = BiasedShape,
     .gradient = NotDifferentiable,
     .inplace = {2},
     .multiply_adds = MultiplyAdds,
     .probes =
         {{.inputs = {{.shape = {3, 5}}, {.shape = {5, 4}}, {.shape = {3, 4}}}},
          {.inputs = {{.shape = {4, 4}}, {.shape = {4, 4}}, {.shape = {4, 4}}}},
          {.inputs = {{.shape = {5, 3}}, {.shape = {5, 4}}, {.shape = {3, 4}}},
           .attrs = {{"transpose_a", true}}}}},
    {.name = "BiasAdd",
     .doc = "x + bias along the last dimension.",
     .inputs = {{"x"}, {"bias"}},
     .shape = [](InferContext& c) -> Status {
       const Shape& x = c.input(0);
       const Shape& bias = c.input(1);
       if (x.rank() < 1 || bias.rank() != 1 ||
           !Compatible(bias, Shape{x[-1]})) {
         return InvalidArgument(
             fmt::format("a bias is a vector over the last dimension: x={} "
                         "bias={}",
                         x.ToString(), bias.ToString()));
       }
       c.SetOutput(0, x);
       return {};
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {dy[0], SumToShapeOf(dy[0], node.input(1))};
     },
     .inplace = {0},
     .scalar = "Add",
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {3, 4}}, {.shape = {4}}}},
                {.inputs = {{.shape = {2, 3, 3, 5}}, {.shape = {5}}}}}},
};

}  // namespace

std::span<const OpDef> MatMulOps() {
  return kMatMulOps;
}

Output MatMul(Operand a, Operand b, const MatMulOptions& options) {
  return Product("MatMul", a, b, options);
}
Output BatchMatMul(Operand a, Operand b, const MatMulOptions& options) {
  return Product("BatchMatMul", a, b, options);
}
Output BiasAdd(Operand x, Operand bias) {
  return x.graph().Add({"BiasAdd", {x, bias}}).output(0);
}

}  // namespace sluice
