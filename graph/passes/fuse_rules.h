// The rules of the fusion pass, in the order in which Fuse applies them; each
// in the file named. A rule replaces nodes through the merger, which refuses
// cycles, and says what it did and how many bytes that saves. Requires concrete
// shapes.
//
// The cost rule: a merged node moves fewer bytes to and from memory than its
// members, and does not compute anything twice that costs more than reading it
// again. Bytes are counted per pass over a tensor, an operation in place of its
// operand reads and writes it.
//
// The second rule, where there are few bytes to save or none: a merged node
// moves no more than its members and saves their fixed price, on a GPU a launch
// each. That is all that lists of casts, of writes and of plain updates save,
// and most of what elementwise nodes of few elements do on a GPU.
#ifndef SLUICE_GRAPH_PASSES_FUSE_RULES_H_
#define SLUICE_GRAPH_PASSES_FUSE_RULES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/passes/node_merger.h"
#include "graph/passes/passes.h"

namespace sluice::passes {

// Fusions by the name of the node that is left.
using Fusions = std::map<std::string, Fusion>;

// Merges the members and records it in `done`; the record of a member that was
// merged before becomes part of this one.
inline void MergeAs(NodeMerger& merger, const std::vector<Node*>& members,
                    Node& root, const NodeMerger::Merged& merged,
                    int64_t bytes_saved, Fusions* done) {
  Fusion fusion = {root.name(), merged.op->name, {}, bytes_saved};
  for (const Node* member : members) {
    auto earlier = done->find(member->name());
    if (earlier == done->end()) {
      fusion.merged.push_back(member->name());
      continue;
    }
    fusion.bytes_saved += earlier->second.bytes_saved;
    for (std::string& name : earlier->second.merged) {
      fusion.merged.push_back(std::move(name));
    }
    done->erase(earlier);
  }
  merger.Merge(members, root, merged);
  (*done)[root.name()] = std::move(fusion);
}

inline int64_t BytesOf(const Output& output) {
  return static_cast<int64_t>(output.type().bytes());
}

// fuse_norm.cc: BatchNorm (+ Add) + Relu as one op that keeps one bit per
// element for the gradient, which then does not need y; and their gradients.
void FuseNorms(NodeMerger& merger, Fusions* done);

// fuse_pool.cc: MaxPool keeps a byte per element for its gradient, which then
// does not need x and y.
void FuseMaxPools(NodeMerger& merger, Fusions* done);

// fuse_optimizer.cc: optimizer updates of many variables as one node.
void FuseOptimizers(NodeMerger& merger, Fusions* done);

// fuse_product.cc: what is added to a matrix product, as part of it.
void FuseProducts(NodeMerger& merger, Fusions* done);

// fuse_loss.cc: softmax cross entropy and its gradient in one pass.
void FuseLosses(NodeMerger& merger, Fusions* done);

// fuse_elementwise.cc: elementwise nodes as one program.
void FuseElementwise(NodeMerger& merger, const DeviceDescriptions& devices,
                     Fusions* done);

// fuse_lists.cc: half copies of variables, and small writes, as one node.
void FuseLists(NodeMerger& merger, Fusions* done);

}  // namespace sluice::passes

#endif  // SLUICE_GRAPH_PASSES_FUSE_RULES_H_
