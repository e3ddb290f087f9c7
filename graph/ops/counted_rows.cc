// Rows of a table that is in pieces: which of some are of a piece, and what the
// pieces have of them brought together. How many those are is known when the
// step runs: tensors are as large as they may be at most, and the rows that
// there are come first (OpDef::counter).
#include <fmt/format.h>

#include "graph/ops/tables.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

Status RowsBetweenShape(InferContext& c) {
  const int64_t begin = c.attrs().Int("begin"), end = c.attrs().Int("end");
  const int64_t limit = c.attrs().Int("limit");
  if (begin < 0 || begin > end || end > limit) {
    return InvalidArgument(
        fmt::format("[{}, {}) is no part of [0, {})", begin, end, limit));
  }
  const Shape& rows = c.input(0);
  const Shape flat = {rows.concrete() ? rows.elements() : kUnknown};
  c.SetOutput(0, flat);
  c.SetOutput(1, flat);
  c.SetOutput(2, {});
  return {};
}

// Of ops with rows [n] and, as the last input, their count.
Status CheckCountedRows(InferContext& c, int rows) {
  if (c.input(rows).rank() != 1) {
    return InvalidArgument(fmt::format("the rows have shape {}, wanted [n]",
                                       c.input(rows).ToString()));
  }
  if (!c.input(rows + 1).scalar()) {
    return InvalidArgument("the count is no scalar");
  }
  return {};
}

// [n..., a slice's dimensions...]
Result<Shape> SlicesOf(const Shape& rows, const Shape& params) {
  if (params.rank() < 1) return InvalidArgument("there are no rows");
  if (rows.rank() + params.rank() - 1 > Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  Shape slices = rows;
  for (int i = 1; i < params.rank(); ++i) slices.push_back(params[i]);
  return slices;
}

Status GatherCountedShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CheckCountedRows(c, 1));
  SLUICE_ASSIGN_OR_RETURN(const Shape y, SlicesOf(c.input(1), c.input(0)));
  c.SetOutput(0, y);
  return {};
}

Status PadRowsShape(InferContext& c) {
  c.SetOutput(0, c.input(0));
  return CheckCountedRows(c, 0);
}

Status JoinRowsShape(InferContext& c) {
  const auto& ends = c.attrs().Ints("ends");
  if (ends.size() + 1 != static_cast<size_t>(c.num_inputs())) {
    return InvalidArgument(
        fmt::format("{} pieces, but {} ends", c.num_inputs() - 1, ends.size()));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < (i == 0 ? 0 : ends[i - 1])) {
      return InvalidArgument(fmt::format("end {} is {}", i, ends[i]));
    }
  }
  const Shape& rows = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    const Shape& piece = c.input(i);
    const bool fits =
        Compatible(piece, c.input(1)) && piece.rank() > 0 &&
        (!rows.concrete() || Compatible(Shape{piece[0]}, {rows.elements()}));
    if (fits) continue;
    return InvalidArgument(fmt::format(
        "piece {} has shape {}, the first {}; wanted one slice for each of the "
        "rows {}",
        i - 1, piece.ToString(), c.input(1).ToString(), rows.ToString()));
  }
  SLUICE_ASSIGN_OR_RETURN(const Shape y, SlicesOf(rows, c.input(1)));
  c.SetOutput(0, y);
  return {};
}

// Rows are those that the operand behind them counts.
template <int rows>
bool ReadsRows(const Node& node, int input) {
  return input == rows && CounterOf(node.input(rows)) == node.input(rows + 1);
}

constexpr OpDef kCountedRowsOps[] = {
    {.name = "RowsBetween",
     .doc = "Those of the numbers `rows` that are in [begin, end), less begin, "
            "where they stand among all, and how many they are; what is behind "
            "these is -1. -1 is no row, and all others are in [0, limit).",
     .made_by = MadeBy::kEngine,
     .inputs = {{"rows", "I"}},
     .outputs = {{"rows", "I"}, {"places", "int64"}, {"count", "int64"}},
     .types = {{"I", kIndex}},
     .attrs = {{"begin", AttrType::kInt},
               {"end", AttrType::kInt},
               {"limit", AttrType::kInt}},
     .shape = RowsBetweenShape,
     .gradient = NotDifferentiable,
     .counter = [](const Node& node, int output) -> Output {
       return output < 2 ? node.output(2) : Output();
     },
     .probes = {{.inputs = {{.shape = {2, 3}, .values = {5, 2, -1, 9, 0, 5}}},
                 .attrs = {{"begin", 2}, {"end", 6}, {"limit", 10}}},
                {.inputs = {{.shape = {4}, .values = {3, 0, 1, 3}}},
                 .attrs = {{"begin", 0}, {"end", 4}, {"limit", 4}}},
                {.inputs = {{.shape = {3}, .values = {3, 0, 1}}},
                 .attrs = {{"begin", 2}, {"end", 2}, {"limit", 4}}}}},
    {.name = "GatherCounted",
     .doc = "The slices of params at the first `count` of `rows`; what is "
            "behind these is left as it is.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"params"}, {"rows", "I"}, {"count", "int64"}},
     .types = {{"T", kAnyType}, {"I", kIndex}},
     .shape = GatherCountedShape,
     .gradient = NotDifferentiable,
     .counter = [](const Node& node, int) { return node.input(2); },
     .reads_counted = ReadsRows<1>,
     .probes = {{.inputs = {{.shape = {5, 3}},
                            {.shape = {4}, .values = {3, 0, 4, 3}},
                            {.values = {4}}}},
                {.inputs = {{.shape = {5}},
                            {.shape = {2}, .values = {2, 1}},
                            {.values = {2}}}}}},
    {.name = "PadRows",
     .doc = "The first `count` of `rows`, and -1, which is no row, in place of "
            "the others.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"rows", "I"}, {"count", "int64"}},
     .outputs = {{"y", "I"}},
     .types = {{"I", kIndex}},
     .shape = PadRowsShape,
     .gradient = NotDifferentiable,
     .reads_counted = ReadsRows<0>,
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {5}, .values = {3, 0, 7, 7, 2}},
                            {.values = {3}}}},
                {.inputs = {{.shape = {2}, .values = {3, 0}},
                            {.values = {0}}}}}},
    {.name = "JoinRows",
     .doc = "The slice of each row from the piece that the row is of: piece i "
            "has those of rows up to ends[i], in their order.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"rows", "I"}, {.name = "pieces", .variadic = true}},
     .types = {{"T", kAnyType}, {"I", kIndex}},
     .attrs = {{"ends", AttrType::kInts}},
     .shape = JoinRowsShape,
     .gradient = NotDifferentiable,
     // As many as there are rows of the piece, which is how they were counted.
     .reads_counted = [](const Node&, int input) { return input > 0; },
     .probes = {{.inputs = {{.shape = {2, 2}, .values = {5, 2, 0, 4}},
                            {.shape = {4, 3}},
                            {.shape = {4, 3}}},
                 .attrs = {{"ends", Ints{3, 6}}}},
                {.inputs = {{.shape = {3}, .values = {1, 0, 1}},
                            {.shape = {3}},
                            {.shape = {3}},
                            {.shape = {3}}},
                 .attrs = {{"ends", Ints{1, 1, 2}}}}}},
};

}  // namespace

std::span<const OpDef> CountedRowsOps() {
  return kCountedRowsOps;
}

}  // namespace sluice
