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

// The shared buffers of one part of a step. Tensors that are received only to
// be joined along their first dimension are received in their place in the
// result; rows that are only sent are sent from where they are.
class PartBuffers {
 public:
  // No buffers are shared.
  PartBuffers() = default;
  // `order`: the part's nodes, each after what it needs.
  explicit PartBuffers(const std::vector<Node*>& order);

  struct Part {
    Output whole;       // seen through views; no part itself
    size_t offset = 0;  // bytes
  };
  // The place of `output`, which is no view, in another buffer; null if it has
  // a buffer of its own.
  const Part* Find(const Output& output) const {
    const auto found = parts_.find(output);
    return found == parts_.end() ? nullptr : &found->second;
  }
  // Whether no kernel runs for `node`, though it would be an instruction
  // otherwise.
  bool NeedsNone(const Node& node) const { return idle_.contains(&node); }
  // The output whose buffer holds the bytes of `output`, seen through views.
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
