// Merging of nodes, for the fusion pass: several nodes of a graph become one,
// never closing a cycle.
//
// A set of nodes can become one if no path leaves it and comes back, and if
// their writes need no order among them, since one node keeps none. Whether the
// first is so is decided on a topological order that is kept true from merge to
// merge: between the first and the last member stand all nodes that such a path
// could use, so a merge of neighbours costs time in proportion to the distance
// between them. In that stretch, what depends on a member is moved behind the
// merged node and everything else before it (the method of Pearce and Kelly,
// 2007, for sets). Since control edges count like data edges, reads and writes
// of variables keep the order that OrderVariables gave them.
#ifndef SLUICE_GRAPH_PASSES_NODE_MERGER_H_
#define SLUICE_GRAPH_PASSES_NODE_MERGER_H_

#include <map>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Thread-compatible. The graph must not be changed by others meanwhile.
class NodeMerger {
 public:
  // One operand or control input (input = -1) of `user`.
  struct Use {
    Node* user = nullptr;
    int input = -1;
  };

  // What a set of nodes becomes.
  struct Merged {
    const OpDef* op = nullptr;
    Attributes attrs = {};
    // Outputs of other nodes than the members. CanMerge does not check this,
    // since it allows edges among the members.
    std::vector<Output> inputs = {};
    std::vector<TensorType> types = {};
    // Which output of the new node stands for an output of a member; those
    // missing must have no use outside the members.
    std::map<Output, int> outputs = {};
  };

  // Throws Error for a graph with a cycle.
  explicit NodeMerger(Graph& graph);
  NodeMerger(const NodeMerger&) = delete;
  NodeMerger& operator=(const NodeMerger&) = delete;
  ~NodeMerger();  // removes the merged nodes from the graph

  // The nodes left, in an order that respects all edges.
  std::vector<Node*> Order() const;
  // All uses of the node's outputs and the node itself, in no fixed order.
  const std::vector<Use>& uses(const Node& node) const {
    return uses_[node.id()];
  }
  // Whether the node is part of another by now.
  bool gone(const Node& node) const { return gone_[node.id()] != 0; }
  // The node's position in the order.
  int place(const Node& node) const { return place_[node.id()]; }
  // The uses of `output` as an operand.
  std::vector<Use> UsesOf(const Output& output) const;

  // Whether the members are on one device, no path leaves them and comes back,
  // and their writes of variables may happen in any order: no two are of one
  // variable, and no member waits for another's.
  bool CanMerge(const std::vector<Node*>& members) const;
  // Turns `root`, one of the members, into the new node. It keeps its name,
  // origin, device and location, and waits for what any member waited for.
  // Requires CanMerge(members).
  void Merge(const std::vector<Node*>& members, Node& root,
             const Merged& merged);
  // Gives a node other inputs. They may only come from nodes that it depends on
  // already.
  void SetInputs(Node& node, std::vector<Output> inputs);
  // A new constant on the node's device, "<the node's name>/<name>".
  Output AddConstant(const Node& node, std::string_view name, Tensor value);
  // Removes a node that has no uses.
  void Drop(Node& node);

 private:
  // The members' descendants between the first and the last of them, marked
  // by place; nothing if one is a member.
  bool MarkBehind(const std::vector<Node*>& members, int* first, int* last,
                  std::vector<char>* behind) const;
  static bool WritesAreFree(const std::vector<Node*>& members);
  void RemoveUses(const std::vector<Node*>& users);
  void AddUses(Node& node);
  void Reorder(const std::vector<Node*>& members, Node& root);

  Graph& graph_;
  std::vector<Node*> order_;            // null where a merged node stood
  std::vector<int> place_;              // in order_, by id
  std::vector<std::vector<Use>> uses_;  // by id
  std::vector<char> gone_;              // by id
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_NODE_MERGER_H_
