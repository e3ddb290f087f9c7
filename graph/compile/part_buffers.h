// Buffers that are parts of others, so that nobody copies them. Internal to
// graph/compile.
#ifndef SLUICE_GRAPH_COMPILE_PART_BUFFERS_H_
#define SLUICE_GRAPH_COMPILE_PART_BUFFERS_H_

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Of one part of a step. Tensors that come from other devices and are joined
// along their first dimension, and nothing else, come right to their place in
// what they make; rows that are only sent are sent from where they are.
class PartBuffers {
 public:
  // There are none.
  PartBuffers() = default;
  // `order`: the part's nodes, each after what it needs.
  explicit PartBuffers(const std::vector<Node*>& order);

  struct Part {
    Output whole;       // seen through views; no part itself
    size_t offset = 0;  // bytes
  };
  // Null: the output, which is no view, has a buffer of its own.
  const Part* Find(const Output& output) const {
    const auto found = parts_.find(output);
    return found == parts_.end() ? nullptr : &found->second;
  }
  // Whether no kernel runs for what is an instruction otherwise.
  bool NeedsNone(const Node& node) const { return idle_.contains(&node); }
  // The output whose buffer has the bytes, seen through views.
  Output WholeOf(const Output& output) const;

 private:
  using Readers = std::map<Output, std::vector<const Node*>>;
  void JoinReceived(const Node& join, const Readers& readers);
  void SendFrom(const Node& slice, const Readers& readers);

  std::map<Output, Part> parts_;
  std::set<const Node*> idle_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_PART_BUFFERS_H_
