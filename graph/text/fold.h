// A graph folded until it can be taken in at a glance: a layer is a box, a
// scope that holds layers is a cluster, what a scope's gradients need is a box
// beside it, and the optimizer is one box.
#ifndef SLUICE_GRAPH_TEXT_FOLD_H_
#define SLUICE_GRAPH_TEXT_FOLD_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/text/roles.h"

namespace sluice {

// Points into the graph, which must stay as it is.
struct FoldedGraph {
  static constexpr int kNone = -1;
  // A cluster or a box: one of the two is kNone, or both for nowhere.
  struct Place {
    int cluster = kNone;
    int box = kNone;
    auto operator<=>(const Place&) const = default;
  };

  // A scope whose layers are drawn one by one.
  struct Cluster {
    std::string name;       // "layer1/0"
    int parent = kNone;     // the cluster around it
    int first_box = kNone;  // of those in it, at any depth
  };
  struct Box {
    Part part = Part::kForward;
    // The node's if it is drawn by itself, else the scope's: "layer1/0/conv1".
    // Empty for the whole forward part, and for gradients of nothing known.
    std::string name;
    int cluster = kNone;  // around it; forward boxes only
    Place of = {};        // what it has the gradients of; backward boxes only
    // In topological order. Those that compute; then variables and constants,
    // which are with whatever uses them.
    std::vector<const Node*> nodes = {}, values = {};
  };
  // All edges from one place to one box. What leaves the forward part leaves
  // it as a whole cluster, where the box lies in one.
  struct Edge {
    Place from = {};
    int to = kNone;
    std::vector<Output> tensors = {};  // each once
    bool control = false;              // a control edge is among them
  };

  std::vector<Cluster> clusters;  // parents first
  std::vector<Box> boxes;         // by their first nodes
  std::vector<Edge> edges;        // by their targets' nodes
  std::vector<int> box_of;        // by the node's id; kNone between them
};

// As many boxes as `max_boxes` allows: scopes that hold scopes are opened level
// by level, at most eight. At the least, one for each part. Throws Error for a
// graph with a cycle.
FoldedGraph Fold(const Graph& graph, int max_boxes);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_FOLD_H_
