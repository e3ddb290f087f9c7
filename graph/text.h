// The readable form of a graph: printed, parsed, saved to files, compared in
// tests.
#ifndef SLUICE_GRAPH_TEXT_H_
#define SLUICE_GRAPH_TEXT_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "graph/graph.h"

namespace sluice {

// One node a line, in topological order; see text.cc for the grammar. Parsing
// what was printed gives an equal graph (names, origins, devices, attributes,
// tensors bit for bit).
std::string PrintGraph(const Graph& graph);

// Never crashes on bad text: the error says line, column and what was wanted.
// Ops must be registered; inference runs on every node and must agree with the
// types written, where there are any.
Result<std::unique_ptr<Graph>> ParseGraph(std::string_view text);

// Graphviz.
std::string PrintDot(const Graph& graph);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_H_
