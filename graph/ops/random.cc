#include "graph/ops/random.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/semantics/random.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// Whether the numbers between, which are computed in float32 for the halves,
// are more than one and none is infinite.
Status CheckRange(DType dtype, const Number& lo, const Number& hi) {
  if (!(lo <= hi) || hi <= lo) {
    return InvalidArgument(
        fmt::format("[{}, {}) is empty", lo.ToString(), hi.ToString()));
  }
  SLUICE_RETURN_IF_ERROR(CheckHolds(dtype, lo));
  if (!IsFloating(dtype)) {
    // Not itself among the numbers.
    return CheckHolds(dtype, hi.whole() ? Number(hi.integer() - 1) : hi);
  }
  SLUICE_RETURN_IF_ERROR(CheckHolds(dtype, hi));
  const double length =
      dtype == DType::kFloat64
          ? hi.real() - lo.real()
          : static_cast<float>(hi.real()) - static_cast<float>(lo.real());
  if (length > 0 && std::isfinite(length)) return {};
  return InvalidArgument(fmt::format("{} does not have the length of [{}, {})",
                                     NameOf(ComputeDType(dtype)), lo.ToString(),
                                     hi.ToString()));
}

Status RandomShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const Shape shape, FullShapeOperand(c, 0));
  const DType dtype = c.attrs().Type("dtype");
  const int64_t first = c.attrs().Int("first");
  if (first < 0 || first % kRandomAlignment != 0) {
    return InvalidArgument(
        fmt::format("the first element is {}, wanted a multiple of {}", first,
                    kRandomAlignment));
  }
  const bool uniform = c.node().Is("RandomUniform");
  if (!IsFloating(dtype) && !(uniform && kIndex.Contains(dtype))) {
    return InvalidArgument(fmt::format(
        "there are no such random numbers of dtype {}", NameOf(dtype)));
  }
  if (uniform) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange(dtype, c.attrs().NumberOf("lo"), c.attrs().NumberOf("hi")));
  } else if (!(c.attrs().Float("stddev") >= 0)) {
    return InvalidArgument(
        fmt::format("the deviation is {}", c.attrs().Float("stddev")));
  }
  c.SetOutput(0, shape);
  return {};
}

// Element 0 is what element `first` of a larger tensor would be.
constexpr OpDef RandomOp(const char* name, const char* doc, AttrDef from,
                         AttrDef to) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"shape", "int64"}},
          .outputs = {{"y", "dtype"}},
          .types = {},
          .attrs = {{"dtype", DType::kFloat32}, from, to, {"first", 0}},
          .shape = RandomShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .probes = {{.inputs = {{.shape = {2}, .values = {3, 5}}}},
                     {.inputs = {{.shape = {2}, .values = {3, 5}}},
                      .attrs = {{"first", 8}}}}};
}

constexpr OpDef kRandomOps[] = {
    RandomOp("RandomUniform", "Uniform on [lo, hi).",
             {"lo", AttrLiteral::OfNumber(0)},
             {"hi", AttrLiteral::OfNumber(1)}),
    RandomOp("RandomNormal", "Normally distributed.", {"mean", 0.0},
             {"stddev", 1.0}),
    RandomOp("TruncatedNormal", "Normal within two deviations of the mean.",
             {"mean", 0.0}, {"stddev", 1.0}),
};

Output Random(const char* op, Graph& graph, const ShapeOperand& shape,
              Attributes attrs, const std::source_location& location) {
  return graph.Add({op, {shape.In(graph, location)}, std::move(attrs)})
      .output(0);
}

}  // namespace

std::span<const OpDef> RandomOps() {
  return kRandomOps;
}

Output RandomUniform(Graph& graph, const ShapeOperand& shape, const Number& lo,
                     const Number& hi, DType dtype,
                     const std::source_location& location) {
  return Random("RandomUniform", graph, shape,
                {{"lo", lo}, {"hi", hi}, {"dtype", dtype}}, location);
}

Output RandomNormal(Graph& graph, const ShapeOperand& shape, double mean,
                    double stddev, DType dtype,
                    const std::source_location& location) {
  return Random("RandomNormal", graph, shape,
                {{"mean", mean}, {"stddev", stddev}, {"dtype", dtype}},
                location);
}

Output TruncatedNormal(Graph& graph, const ShapeOperand& shape, double mean,
                       double stddev, DType dtype,
                       const std::source_location& location) {
  return Random("TruncatedNormal", graph, shape,
                {{"mean", mean}, {"stddev", stddev}, {"dtype", dtype}},
                location);
}

}  // namespace sluice
