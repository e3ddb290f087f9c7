#include "graph/recompute.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

// A second run of the op may be had.
bool Repeatable(const Node& node) {
  return node.mutates() == 0 && !node.op().sink && !node.op().asynchronous;
}

int64_t BytesOf(const Output& output) {
  int64_t elements = 1;
  for (int64_t d : output.shape()) elements *= d == kUnknown ? 1 : d;
  return elements * static_cast<int64_t>(SizeOf(output.dtype()));
}

// Cuts wherever the segment so far exceeds `limit` bytes, at the position of
// its second half that the fewest bytes cross.
std::vector<int> GreedyCuts(const std::vector<int64_t>& bytes,
                            const std::vector<int64_t>& crossing,
                            int64_t limit) {
  std::vector<int> cuts;
  const int n = static_cast<int>(bytes.size());
  int begin = 0, best = -1;
  int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    if (i > begin && sum > limit / 2 &&
        (best < 0 || crossing[i] <= crossing[best])) {
      best = i;
    }
    sum += bytes[i];
    if (sum > limit && best >= 0) {
      cuts.push_back(best);
      begin = best;
      i = best - 1;  // go on behind the cut
      sum = 0;
      best = -1;
    }
  }
  return cuts;
}

int64_t Cost(const std::vector<int64_t>& bytes,
             const std::vector<int64_t>& crossing,
             const std::vector<int>& cuts) {
  int64_t kept = 0, largest = 0;
  int begin = 0;
  for (size_t c = 0; c <= cuts.size(); ++c) {
    const int end = c < cuts.size() ? cuts[c] : static_cast<int>(bytes.size());
    if (c < cuts.size()) kept += crossing[end];
    largest =
        std::max(largest, std::accumulate(bytes.begin() + begin,
                                          bytes.begin() + end, int64_t{0}));
    begin = end;
  }
  return kept + largest;
}

}  // namespace

std::vector<int> ChooseCuts(const std::vector<int64_t>& bytes,
                            const std::vector<int64_t>& crossing) {
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  std::vector<int> best;
  int64_t least = total;
  for (double limit = static_cast<double>(total) / 2; limit >= 1;
       limit /= 1.25) {
    std::vector<int> cuts =
        GreedyCuts(bytes, crossing, static_cast<int64_t>(limit));
    if (cuts.size() + 1 >= bytes.size()) break;
    const int64_t cost = Cost(bytes, crossing, cuts);
    if (cost < least) {
      least = cost;
      best = std::move(cuts);
    }
  }
  return best;
}

Recomputation::Recomputation(const std::vector<Node*>& forward) {
  const int n = static_cast<int>(forward.size());
  std::unordered_map<const Node*, int> position;
  for (int i = 0; i < n; ++i) position[forward[i]] = i;

  // Where each value is last used by a forward node.
  std::map<Output, int> last_use;
  for (int i = 0; i < n; ++i) {
    for (const Output& input : forward[i]->inputs()) {
      if (position.contains(&input.node())) last_use[input] = i;
    }
  }
  std::vector<int64_t> bytes(n), crossing(n + 1);
  for (int i = 0; i < n; ++i) {
    if (forward[i]->op().view) continue;  // its bytes are its input's
    for (int o = 0; o < forward[i]->num_outputs(); ++o) {
      bytes[i] += BytesOf(forward[i]->output(o));
    }
  }
  for (const auto& [output, last] : last_use) {
    for (int i = position.at(&output.node()) + 1; i <= last; ++i) {
      crossing[i] += BytesOf(output);
    }
  }
  const std::vector<int> cuts = ChooseCuts(bytes, crossing);
  segments_ = static_cast<int>(cuts.size()) + 1;
  for (int i = 0; i < n; ++i) {
    segment_of_[forward[i]] = static_cast<int>(
        std::upper_bound(cuts.begin(), cuts.end(), i) - cuts.begin());
  }
  for (const auto& [output, last] : last_use) {
    if (segment_of_.at(&output.node()) != segment_of_.at(forward[last]) ||
        !Repeatable(output.node())) {
      kept_.insert(output);
    }
  }
}

Node& Recomputation::Twin(Node& node, const Output& trigger) {
  auto segment = segment_of_.find(&node);
  if (segment == segment_of_.end() || segment->second == segments_ - 1 ||
      !Repeatable(node)) {
    return node;
  }
  Node*& first = triggers_[segment->second];
  if (first == nullptr) first = &trigger.node();
  return Copy(node, first);
}

Node& Recomputation::Copy(Node& node, Node* trigger) {
  if (auto it = twins_.find(&node); it != twins_.end()) return *it->second;
  bool starts = true;  // reads nothing that is computed again
  std::vector<Output> inputs = node.inputs();
  for (Output& input : inputs) {
    Node& producer = input.node();
    if (!segment_of_.contains(&producer) || Kept(input)) continue;
    input = Copy(producer, trigger).output(input.index());
    starts = false;
  }
  Graph& graph = node.graph();
  Node& twin = graph.AddRaw(graph.UniqueName("recompute/" + node.name()),
                            node.origin(), node.op(), node.attrs(),
                            std::move(inputs), node.output_types());
  twin.set_device(node.device());
  twin.set_location(node.location());
  // Not before the gradient is here; and no pass may merge it with the first.
  if (starts) twin.AddControlInput(trigger);
  twins_[&node] = &twin;
  return twin;
}

void Recomputation::Finish() {
  for (const auto& [node, twin] : twins_) {
    for (int i = 0; i < node->num_outputs(); ++i) {
      const Output output(const_cast<Node*>(node), i);
      if (Kept(output)) {
        node->graph().ReplaceUses(twin->output(i), output, false);
      }
    }
  }
}

}  // namespace sluice
