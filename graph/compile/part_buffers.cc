#include "graph/compile/part_buffers.h"

#include <algorithm>
#include <cstdint>

#include "graph/traversal.h"

namespace sluice {

PartBuffers::PartBuffers(const std::vector<Node*>& order) {
  Readers readers;
  for (const Node* node : order) {
    if (!node->IsInstruction()) continue;
    for (const Output& input : node->inputs()) {
      readers[ViewRoot(input)].push_back(node);
    }
  }
  for (const Node* node : order) {
    if (node->Is("Concat")) JoinReceived(*node, readers);
    if (node->Is("Slice")) SendFrom(*node, readers);
  }
}

Output PartBuffers::WholeOf(const Output& output) const {
  const Output& root = ViewRoot(output);
  const Part* const part = Find(root);
  return part == nullptr ? root : part->whole;
}

void PartBuffers::JoinReceived(const Node& join, const Readers& readers) {
  const int64_t axis = join.attrs().Int("axis");
  if (axis != 0 && axis != -join.output_type(0).shape.rank()) return;
  for (const Output& input : join.inputs()) {
    const Output& root = ViewRoot(input);
    if (!root.node().IsReceive() || root.node().op().wait == nullptr) return;
    int joins = 0;
    for (const Node* reader : readers.at(root)) {
      if (reader == &join) ++joins;
      if (reader != &join && !reader->IsReceive()) return;
    }
    if (joins != 1) return;
  }
  size_t offset = 0;
  for (const Output& input : join.inputs()) {
    parts_[ViewRoot(input)] = {join.output(0), offset};
    offset += input.type().bytes();
  }
  idle_.insert(&join);
}

void PartBuffers::SendFrom(const Node& slice, const Readers& readers) {
  const Output& whole = ViewRoot(slice.input(0));
  const Node& from = whole.node();
  // A variable may be written before its rows have gone.
  const bool steady = from.IsInstruction() && from.mutates() == 0 &&
                      !idle_.contains(&from) && Find(whole) == nullptr;
  const auto read = readers.find(slice.output(0));
  if (!steady || read == readers.end()) return;
  const bool sent =
      std::all_of(read->second.begin(), read->second.end(),
                  [](const Node* reader) { return reader->IsSend(); });
  const Shape& shape = slice.output_type(0).shape;
  const Shape& all = slice.input(0).shape();
  if (!sent || shape.rank() == 0 || all[0] == 0) return;
  if (!std::equal(shape.begin() + 1, shape.end(), all.begin() + 1)) return;
  const auto first = static_cast<size_t>(slice.attrs().Ints("begin")[0]);
  const size_t row = whole.type().bytes() / static_cast<size_t>(all[0]);
  parts_[slice.output(0)] = {whole, first * row};
  idle_.insert(&slice);
}

}  // namespace sluice
