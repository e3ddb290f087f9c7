#include "models/optim/reduce_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/ops/array.h"
#include "graph/ops/collective.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/shape.h"
#include "graph/passes/passes.h"

namespace sluice {
namespace {

// Of what a step is fed only the number of examples may vary: where a batch has
// a shape of its own, one share tells nothing of others.
bool VaryByExamplesAlone(const Graph& step,
                         const std::vector<FeedShape>& feeds) {
  for (const auto& node : step.nodes()) {
    if (!node->IsPlaceholder()) continue;
    const int64_t index = FeedIndex(*node);
    if (index < 0) return false;
    const Shape& shape = feeds[static_cast<size_t>(index)].output.shape();
    for (int d = 1; d < shape.rank(); ++d) {
      if (shape[d] == kUnknown) return false;
    }
  }
  return true;
}

// How many elements it has with the largest share; nullopt: that is not known.
std::optional<int64_t> ElementsOf(const Output& rows,
                                  const AllReduceOptions& options) {
  auto step = ExtractStep(rows.graph(), {options.largest_share, {rows}, {}});
  if (!step.ok()) return std::nullopt;
  passes::Prune(**step);
  if (!VaryByExamplesAlone(**step, options.largest_share)) return std::nullopt;
  if (!passes::Refine(**step, FoldNode).ok()) return std::nullopt;
  const auto types = FetchTypes(**step);
  if (!types.ok() || !(*types)[0].shape.concrete()) return std::nullopt;
  return (*types)[0].shape.elements();
}

// That a worker sends, with so many slices, and of the whole in a ring.
bool IsLess(int64_t slices, const Output& variable, int64_t workers) {
  const Shape& shape = variable.shape();
  const auto width = static_cast<double>(SizeOf(variable.dtype()));
  const double row =
      static_cast<double>(shape.elements(1, shape.rank())) * width;
  const double sent = static_cast<double>(slices) * (row + sizeof(int64_t));
  return sent * static_cast<double>(workers) <
         2 * row * static_cast<double>(shape[0]);
}

Shape SlicesOf(const Output& variable, int64_t count) {
  Shape shape = variable.shape();
  shape.set(0, count);
  return shape;
}

Output Whole(const GradientAndVariable& pair, const Output& rows) {
  const Output& variable = pair.variable;
  // What is of no row is 0, wherever it is added.
  return ScatterAdd(
      Fill(variable.graph(), variable.shape(), 0, variable.dtype()),
      Maximum(Reshape(rows, {-1}), 0),
      Reshape(pair.gradient, SlicesOf(variable, -1)));
}

}  // namespace

RowsToSend ChooseRows(FoundGradients& gradients,
                      const AllReduceOptions& options, bool always) {
  RowsToSend send;
  for (GradientAndVariable& pair : gradients.pairs) {
    const auto found = gradients.rows.find(pair.variable);
    if (found == gradients.rows.end()) continue;
    const std::optional<int64_t> slices = ElementsOf(found->second, options);
    if (always && !slices) {
      throw Error(Code::kUnimplemented,
                  fmt::format("sparse rows of '{}': how many rows a worker "
                              "reads at most cannot be told from the shapes of "
                              "its share of a batch",
                              pair.variable.name()));
    }
    if (slices && (always || IsLess(*slices, pair.variable, options.workers))) {
      send[pair.variable] = *slices;
      continue;
    }
    DeviceScope there(pair.variable.graph(), pair.variable.node().device());
    pair.gradient = Whole(pair, found->second);
    gradients.rows.erase(found);
  }
  return send;
}

void ReduceRows(FoundGradients& gradients, const RowsToSend& send,
                DType between) {
  for (GradientAndVariable& pair : gradients.pairs) {
    const auto most = send.find(pair.variable);
    if (most == send.end()) continue;
    Graph& graph = pair.variable.graph();
    DeviceScope there(graph, pair.variable.node().device());
    NameScope names(graph, "reduce_rows");
    Output& rows = gradients.rows[pair.variable];
    const DType dtype = pair.gradient.dtype();
    rows = Cast(Reshape(rows, {-1}), DType::kInt64);
    const Output missing = Reshape(most->second - Size(rows), {1});
    Output slices = Reshape(pair.gradient, SlicesOf(pair.variable, -1));
    slices = slices / Cast(NumWorkers(graph), dtype);
    if (dtype == DType::kFloat32 && between != dtype) {
      slices = Cast(slices, between);
    }
    std::vector<int64_t> row;
    for (int d = 1; d < pair.variable.shape().rank(); ++d) {
      row.push_back(pair.variable.shape()[d]);
    }
    const Output shape =
        row.empty()
            ? missing
            : Concat({missing, graph.Constant(Tensor::Vector<int64_t>(row))},
                     0);
    // By its name workers know it from another table.
    const std::string& table = pair.variable.node().name();
    rows = AllGather(Concat({rows, Fill(graph, missing, -1, DType::kInt64)}, 0),
                     table + "/rows");
    slices =
        AllGather(Concat({slices, Fill(graph, shape, 0, slices.dtype())}, 0),
                  table + "/slices");
    pair.gradient = slices.dtype() == dtype ? slices : Cast(slices, dtype);
  }
}

}  // namespace sluice
