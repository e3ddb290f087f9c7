#include "graph/recompute.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace sluice {
namespace {

// A second run of the op may be had.
bool Repeatable(const Node& node) {
  return node.mutates() == 0 && !node.op().sink && !node.op().collective;
}

int64_t BytesOf(const Output& output) {
  int64_t elements = 1;
  for (int64_t d : output.shape()) elements *= d == kUnknown ? 1 : d;
  return elements * static_cast<int64_t>(SizeOf(output.dtype()));
}

int64_t BytesOf(const Node& node) {
  if (node.op().view) return 0;  // its bytes are its input's
  int64_t bytes = 0;
  for (int i = 0; i < node.num_outputs(); ++i) bytes += BytesOf(node.output(i));
  return bytes;
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

namespace {

// The values between cuts, about the square root of the number of nodes apart
// by bytes, where few bytes cross. The last segment is kept: its gradient comes
// at once.
std::set<Output> ValuesBetweenCuts(const std::vector<Node*>& forward) {
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
  for (int i = 0; i < n; ++i) bytes[i] = BytesOf(*forward[i]);
  for (const auto& [output, last] : last_use) {
    for (int i = position.at(&output.node()) + 1; i <= last; ++i) {
      crossing[i] += BytesOf(output);
    }
  }
  const std::vector<int> cuts = ChooseCuts(bytes, crossing);
  auto segment = [&](int i) {
    return std::upper_bound(cuts.begin(), cuts.end(), i) - cuts.begin();
  };
  std::set<Output> again;
  for (int i = 0; i < n && segment(i) < std::ssize(cuts); ++i) {
    const Node& node = *forward[i];
    if (!Repeatable(node)) continue;
    const int outputs = node.op().again != nullptr ? 1 : node.num_outputs();
    for (int o = 0; o < outputs; ++o) {
      const Output output = node.output(o);
      const auto last = last_use.find(output);
      if (last == last_use.end() || segment(last->second) == segment(i)) {
        again.insert(output);
      }
    }
  }
  return again;
}

// Normalised tensors, and what is elementwise behind them. What such nodes and
// others read is kept, such as the result of a residual block: computed again
// it would need those of all blocks before.
std::set<Output> NormalizedValues(const std::vector<Node*>& forward) {
  std::set<Output> read_elementwise, read_otherwise;
  for (const Node* node : forward) {
    (node->op().elementwise ? read_elementwise : read_otherwise)
        .insert(node->inputs().begin(), node->inputs().end());
  }
  std::set<Output> again;
  for (const Node* node : forward) {
    const bool follows =
        node->op().elementwise &&
        std::any_of(node->inputs().begin(), node->inputs().end(),
                    [&](const Output& x) { return again.contains(x); });
    const Output y = node->output(0);
    if ((follows || node->op().again != nullptr) &&
        !(read_elementwise.contains(y) && read_otherwise.contains(y))) {
      again.insert(y);
    }
  }
  // Nothing is won by what is as large as all that is kept after it.
  int64_t later = 0;
  for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
    const int64_t bytes = BytesOf(**node);
    if (bytes >= later) again.erase((*node)->output(0));
    if (!again.contains((*node)->output(0))) later += bytes;
  }
  return again;
}

std::string NameAgain(const Node& node) {
  return "recompute/" + node.name();
}

}  // namespace

bool Recomputes(const Node& node, const Node& first) {
  return node.origin() == first.origin() &&
         node.name().find(NameAgain(first)) != std::string::npos;
}

Recomputation::Recomputation(const std::vector<Node*>& forward, Recompute which,
                             PinnedReads& pinned)
    : pinned_(pinned),
      again_(which == Recompute::kAll ? ValuesBetweenCuts(forward)
                                      : NormalizedValues(forward)) {}

Node& Recomputation::Twin(Node& node, const Output& trigger) {
  bool any = false;
  for (const Output& input : node.inputs()) any |= again_.contains(input);
  for (int i = 0; i < node.num_outputs(); ++i) {
    any |= again_.contains(node.output(i));
  }
  return any && Repeatable(node) ? Copy(node, &trigger.node()) : node;
}

Node& Recomputation::Copy(Node& node, Node* trigger) {
  // Depth first, without recursion: graphs may be deep.
  std::vector<Node*> stack = {&node};
  while (!stack.empty()) {
    Node& next = *stack.back();
    const size_t depth = stack.size();
    if (!twins_.contains(&next)) {
      const std::vector<Output> inputs = pinned_.InputsOf(next);
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
        if (again_.contains(*input) && !twins_.contains(&input->node())) {
          stack.push_back(&input->node());
        }
      }
      if (stack.size() > depth) continue;
      CopyAlone(next, trigger);
    }
    stack.pop_back();
  }
  return *twins_.at(&node);
}

void Recomputation::CopyAlone(Node& node, Node* trigger) {
  bool starts = true;  // reads nothing that is computed again
  std::vector<Output> inputs = pinned_.InputsOf(node);
  for (Output& input : inputs) {
    if (!again_.contains(input)) continue;
    input = twins_.at(&input.node())->output(input.index());
    starts = false;
  }
  Graph& graph = node.graph();
  // Not before the gradient is here; and no pass may merge it with the first.
  const ControlScope after(graph, starts ? std::vector{Operation(trigger)}
                                         : std::vector<Operation>{});
  const DeviceScope device(graph, node.device());
  Node& twin =
      graph.AddRaw(graph.UniqueName(NameAgain(node)), node.origin(), node.op(),
                   node.attrs(), inputs, node.output_types());
  twin.set_device(node.device());
  twin.set_location(node.location());
  if (starts) twin.AddControlInput(trigger);
  if (node.op().again != nullptr && again_.contains(node.output(0))) {
    const NameScope below(graph, NameAgain(node));
    const Output shortcut = node.op().again(node, inputs);
    shortcut.node().set_location(node.location());
    shortcut.node().set_origin(node.origin());
    shortcuts_[twin.output(0)] = shortcut;
  }
  twins_[&node] = &twin;
}

void Recomputation::Finish() {
  for (const auto& [node, twin] : twins_) {
    for (int i = 0; i < node->num_outputs(); ++i) {
      const auto shortcut = shortcuts_.find(twin->output(i));
      if (shortcut != shortcuts_.end()) {
        node->graph().ReplaceUses(twin->output(i), shortcut->second, false);
      } else if (!again_.contains(node->output(i))) {
        node->graph().ReplaceUses(twin->output(i), node->output(i), false);
      }
    }
  }
}

}  // namespace sluice
