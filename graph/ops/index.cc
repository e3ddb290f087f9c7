#include "graph/ops/index.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/ops/array.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

Status OneHotShape(InferContext& c) {
  Shape y = c.input(0);
  const int64_t depth = c.attrs().Int("depth");
  if (depth < 0) {
    return InvalidArgument(fmt::format("the depth is {}", depth));
  }
  if (y.rank() == Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  for (const char* value : {"on", "off"}) {
    SLUICE_RETURN_IF_ERROR(
        CheckHolds(c.attrs().Type("dtype"), c.attrs().NumberOf(value)));
  }
  y.push_back(depth);
  c.SetOutput(0, y);
  return {};
}

Status TopKShape(InferContext& c) {
  Shape y = c.input(0);
  const int64_t k = c.attrs().Int("k");
  if (y.rank() < 1) return InvalidArgument("x needs at least one dimension");
  if (k < 0) {
    return InvalidArgument(fmt::format("k is {}, wanted at least 0", k));
  }
  if (y[-1] != kUnknown && k > y[-1]) {
    return InvalidArgument(
        fmt::format("there are no {} largest in a row of {}", k, y[-1]));
  }
  y.set(-1, k);
  c.SetOutput(0, y);
  c.SetOutput(1, y);
  return {};
}

// Attributes of a gather along the last dimension, row by row.
GatherOptions AlongLast(const Output& x) {
  const int last = x.shape().rank() - 1;
  return {.axis = last, .batch_dims = last};
}

Outputs TopKGradient(const Node& node, const Outputs& dy) {
  if (!dy[0].valid()) return Outputs(1);
  const Output x = node.input(0);
  return {ScatterAdd(ZerosLike(x), node.output(1), dy[0], AlongLast(x))};
}

Status InTopKShape(InferContext& c) {
  const Shape& predictions = c.input(0);
  const Shape& targets = c.input(1);
  if (predictions.rank() != 2 || targets.rank() != 1 ||
      !Compatible(targets, Shape{predictions[0]})) {
    return InvalidArgument(
        "wanted predictions [rows,classes] and targets [rows]");
  }
  if (c.attrs().Int("k") < 1) return InvalidArgument("k must be at least 1");
  c.SetOutput(0, {predictions[0] == kUnknown ? targets[0] : predictions[0]});
  return {};
}

// The shape of Gather's result for params and indices of these shapes.
Result<Shape> GatheredShape(const Attributes& attrs, const Shape& params,
                            const Shape& indices) {
  const int64_t batch = attrs.Int("batch_dims");
  SLUICE_ASSIGN_OR_RETURN(const int axis,
                          NormalizeAxis(attrs.Int("axis"), params.rank()));
  if (batch < 0 || batch > axis || batch > indices.rank()) {
    return InvalidArgument(
        fmt::format("batch_dims is {}, wanted 0 to the axis "
                    "({}) and the indices' rank ({})",
                    batch, axis, indices.rank()));
  }
  const int shared = static_cast<int>(batch);
  const Shape lead = params.Slice(0, shared);
  if (!Compatible(lead, indices.Slice(0, shared))) {
    return InvalidArgument(
        fmt::format("the first {} dimensions differ", shared));
  }
  if (params.rank() - 1 + indices.rank() - shared > Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  Shape y;
  for (int i = 0; i < axis; ++i) {
    y.push_back(i < shared && params[i] == kUnknown ? indices[i] : params[i]);
  }
  for (int i = shared; i < indices.rank(); ++i) y.push_back(indices[i]);
  for (int i = axis + 1; i < params.rank(); ++i) y.push_back(params[i]);
  return y;
}

Status GatherShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape y,
                          GatheredShape(c.attrs(), c.input(0), c.input(1)));
  c.SetOutput(0, y);
  return {};
}

Status ScatterAddShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape wanted,
                          GatheredShape(c.attrs(), c.input(0), c.input(1)));
  if (!Compatible(wanted, c.input(2))) {
    return InvalidArgument(fmt::format("the updates have shape {}, wanted {}",
                                       c.input(2).ToString(),
                                       wanted.ToString()));
  }
  c.SetOutput(0, c.input(0));
  return {};
}

Status SumRowsShape(InferContext& c) {
  const Shape& rows = c.input(0);
  const Shape& values = c.input(1);
  if (values.rank() < rows.rank() ||
      !Compatible(rows, values.Slice(0, rows.rank()))) {
    return InvalidArgument(
        "wanted rows [n...] and values [n..., a row's dimensions...]");
  }
  if (c.attrs().Int("limit") < 0) {
    return InvalidArgument(
        fmt::format("the limit is {}", c.attrs().Int("limit")));
  }
  c.SetOutput(0, rows);
  c.SetOutput(1, values);
  return {};
}

// x [n..., R...] of rows [n...] as [slices, R...].
Output Flattened(const Output& x, const Output& rows) {
  const int lead = rows.shape().rank();
  if (lead == 1) return x;
  if (!x.shape().concrete()) {
    const Output others = Slice(ShapeOf(x), {lead}, {-1});
    return Reshape(x, Concat({Reshape(Size(rows), {1}), others}, 0));
  }
  Shape flat{x.shape().elements(0, lead)};
  for (int64_t d : x.shape().Slice(lead, x.shape().rank())) flat.push_back(d);
  return Reshape(x, flat);
}

// Each slice was added to the first of its row, whose place a table of the rows
// has. Those of no row were not.
Outputs SumRowsGradient(const Node& node, const Outputs& dy) {
  const Output rows = node.input(0), values = node.input(1);
  const int64_t slices = rows.shape().elements();
  const Output places = slices == kUnknown ? Range(0, Size(rows), 1)
                                           : Range(node.graph(), slices);
  const Output of_each = Reshape(rows, {-1});
  const Output of_first = Reshape(node.output(0), {-1});
  Output none = Less(of_each, 0);
  const Output row = Select(none, 0, of_each);
  const int64_t limit = std::max<int64_t>(node.attrs().Int("limit"), 1);
  const Output firsts =
      ScatterAdd(Fill(node.graph(), {limit}, 0, DType::kInt64), row,
                 Select(Less(of_first, 0), 0, places));
  const Output sums = Gather(Flattened(dy[1], rows), Gather(firsts, row));
  for (int i = 1; i < sums.shape().rank(); ++i) none = ExpandDims(none, -1);
  return {Output(), ReshapeToShapeOf(Select(none, 0, sums), values)};
}

GatherOptions OptionsOf(const Node& node) {
  return {.axis = node.attrs().Int("axis"),
          .batch_dims = node.attrs().Int("batch_dims")};
}

Output GatheredRows(const Node& node) {
  const auto [axis, batch_dims] = OptionsOf(node);
  const bool first = axis == 0 || axis == -node.input(0).shape().rank();
  return first && batch_dims == 0 ? node.input(1) : Output();
}

constexpr OpDef kIndexOps[] = {
    {.name = "OneHot",
     .doc = "A new last dimension: `on` at the index, `off` elsewhere.",
     .inputs = {{"indices", "I"}},
     .outputs = {{"y", "dtype"}},
     .types = {{"I", kIndex}},
     .attrs = {{"depth", AttrType::kInt},
               {"on", AttrLiteral::OfNumber(1)},
               {"off", AttrLiteral::OfNumber(0)},
               {"dtype", DType::kFloat32}},
     .shape = OneHotShape,
     .gradient = NotDifferentiable,
     .probes = {{.inputs = {{.shape = {2, 3}, .values = {0, 3, 1, 2}}},
                 .attrs = {{"depth", 4}, {"on", 0.75}, {"off", 0.25}}}}},
    {.name = "TopK",
     .doc = "The k largest along the last dimension and where they are, the "
            "first of equal ones first.",
     .inputs = {{"x"}},
     .outputs = {{"values"}, {"indices", "int64"}},
     .types = {{"T", kNumeric}},
     .attrs = {{"k", AttrType::kInt}},
     .shape = TopKShape,
     .gradient = TopKGradient,
     .probes = {{.inputs = {{.shape = {2, 4},
                             .values = {1, 4, 3, 2, 6, 5, 8, 7}}},
                 .attrs = {{"k", 2}}},
                {.inputs = {{.shape = {2, 4}}}, .attrs = {{"k", 0}}}}},
    {.name = "InTopK",
     .doc = "Are fewer than k classes rated higher than the target?",
     .inputs = {{"predictions"}, {"targets", "I"}},
     .outputs = {{"y", "bool"}},
     .types = {{"T", kFloating}, {"I", kIndex}},
     .attrs = {{"k", AttrType::kInt}},
     .shape = InTopKShape,
     .gradient = NotDifferentiable,
     .probes = {{.inputs = {{.shape = {4, 5}},
                            {.shape = {4}, .values = {0, 4, 2, 1}}},
                 .attrs = {{"k", 2}}}}},
    {.name = "Gather",
     .doc = "The slices of params along an axis at `indices`.",
     .inputs = {{"params"}, {"indices", "I"}},
     .types = {{"T", kAnyType}, {"I", kIndex}},
     .attrs = {{"axis", 0}, {"batch_dims", 0}},
     .shape = GatherShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {ScatterAdd(ZerosLike(node.input(0)), node.input(1), dy[0],
                          OptionsOf(node)),
               {}};
     },
     .rows_taken = GatheredRows,
     .half = HalfRule::kFollow,
     .probes =
         {{.inputs = {{.shape = {4, 3}},
                      {.shape = {2, 2}, .values = {3, 0, 3, 1}}}},
          {.inputs = {{.shape = {2, 5, 3}}, {.shape = {2}, .values = {4, 1}}},
           .attrs = {{"axis", 1}}},
          {.inputs = {{.shape = {2, 2, 5}},
                      {.shape = {2, 3}, .values = {4, 1, 1, 0, 2}}},
           .attrs = {{"axis", -1}, {"batch_dims", 1}}},
          {.inputs = {{.shape = {3, 0}}, {.shape = {2}, .values = {2, 0}}}}}},
    {.name = "ScatterAdd",
     .doc = "x with each slice of updates added at its index along an axis.",
     .inputs = {{"x"}, {"indices", "I"}, {"updates"}},
     .types = {{"T", kNumeric}, {"I", kIndex}},
     .attrs = {{"axis", 0}, {"batch_dims", 0}},
     .shape = ScatterAddShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {dy[0], {}, Gather(dy[0], node.input(1), OptionsOf(node))};
     },
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {4, 3}},
                            {.shape = {2, 2}, .values = {3, 0, 3, 1}},
                            {.shape = {2, 2, 3}}}},
                {.inputs = {{.shape = {2, 2, 5}},
                            {.shape = {2, 3}, .values = {4, 1, 1, 0, 2}},
                            {.shape = {2, 2, 3}}},
                 .attrs = {{"axis", -1}, {"batch_dims", 1}}},
                {.inputs = {{.shape = {3, 0}},
                            {.shape = {2}, .values = {2, 0}},
                            {.shape = {2, 0}}}}}},
    {.name = "SumRows",
     .doc =
         "The slices of each row added up where its first one is; the others "
         "become zeros, of row -1.",
     .inputs = {{"rows", "I"}, {"values"}},
     .outputs = {{"rows", "I"}, {"sums"}},
     .types = {{"T", kFloatDouble}, {"I", kIndex}},
     .attrs = {{"limit", AttrType::kInt}},
     .shape = SumRowsShape,
     .gradient = SumRowsGradient,
     .probes = {{.inputs = {{.shape = {2, 3}, .values = {5, 2, -1, 5, 0, 5}},
                            {.shape = {2, 3, 2}}},
                 .attrs = {{"limit", 6}}},
                {.inputs = {{.shape = {3}, .values = {1, 0, 1}},
                            {.shape = {3}}},
                 .attrs = {{"limit", 2}}}}},
};

Attributes AttributesOf(const GatherOptions& options) {
  return {{"axis", options.axis}, {"batch_dims", options.batch_dims}};
}

}  // namespace

std::span<const OpDef> IndexOps() {
  return kIndexOps;
}

Output OneHot(Operand indices, int64_t depth, const OneHotOptions& options) {
  return indices.graph()
      .Add({"OneHot",
            {indices},
            {{"depth", depth},
             {"on", options.on},
             {"off", options.off},
             {"dtype", options.dtype}}})
      .output(0);
}

TopKOutputs TopK(Operand x, int64_t k) {
  Node& node = x.graph().Add({"TopK", {x}, {{"k", k}}});
  return {node.output(0), node.output(1)};
}

Output InTopK(Operand predictions, Operand targets, int64_t k) {
  return predictions.graph()
      .Add({"InTopK", {predictions, targets}, {{"k", k}}})
      .output(0);
}

Output Gather(Operand params, Operand indices, const GatherOptions& options) {
  return params.graph()
      .Add({"Gather", {params, indices}, AttributesOf(options)})
      .output(0);
}

Output ScatterAdd(Operand x, Operand indices, Operand updates,
                  const GatherOptions& options) {
  return x.graph()
      .Add({"ScatterAdd", {x, indices, updates}, AttributesOf(options)})
      .output(0);
}

SumRowsOutputs SumRows(Operand rows, Operand values, int64_t limit) {
  Node& node =
      values.graph().Add({"SumRows", {rows, values}, {{"limit", limit}}});
  return {node.output(0), node.output(1)};
}

Output EmbeddingLookup(Operand table, Operand ids) {
  return Gather(table, ids);
}

}  // namespace sluice
