// Graphs as pictures, for Graphviz's `dot`. PrintDot (graph/text/text.h) draws
// every node; of a training step that is more than one can look at.
#ifndef SLUICE_GRAPH_TEXT_DOT_H_
#define SLUICE_GRAPH_TEXT_DOT_H_

#include <string>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// What fits a page so that names can still be read: ResNet-50 by its blocks.
inline constexpr int kOverviewBoxes = 60;

// The graph folded to about `max_boxes` boxes (graph/text/fold.h): layers as
// boxes, scopes around layers as clusters, beside them their gradients, and
// the optimizer as one box. The first line is a comment that counts. Throws
// Error for a graph with a cycle.
std::string PrintOverview(const Graph& graph, int max_boxes = kOverviewBoxes);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_DOT_H_
