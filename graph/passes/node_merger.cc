#include "graph/passes/node_merger.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace sluice {

NodeMerger::NodeMerger(Graph& graph)
    : graph_(graph), order_(graph.TopologicalOrder()) {
  int ids = 0;
  for (const Node* node : order_) ids = std::max(ids, node->id() + 1);
  place_.resize(ids);
  uses_.resize(ids);
  gone_.resize(ids);
  for (size_t p = 0; p < order_.size(); ++p) {
    place_[order_[p]->id()] = static_cast<int>(p);
    AddUses(*order_[p]);
  }
}

NodeMerger::~NodeMerger() {
  graph_.Remove([&](const Node& node) { return gone_[node.id()] != 0; });
}

Output NodeMerger::AddConstant(const Node& node, std::string_view name,
                               Tensor value) {
  const std::string unique =
      graph_.UniqueName(fmt::format("{}/{}", node.name(), name));
  const TensorType type = {value.dtype(), value.shape()};
  Node& added = graph_.AddRaw(unique, unique, OpTable::Global().Get("Const"),
                              {{"value", std::move(value)}}, {}, {type});
  added.set_device(node.device());
  for (int& place : place_) ++place;
  order_.insert(order_.begin(), &added);
  place_.resize(added.id() + 1);
  uses_.resize(added.id() + 1);
  gone_.resize(added.id() + 1);
  return added.output(0);
}

std::vector<Node*> NodeMerger::Order() const {
  std::vector<Node*> order = order_;
  std::erase(order, nullptr);
  return order;
}

std::vector<NodeMerger::Use> NodeMerger::UsesOf(const Output& output) const {
  std::vector<Use> found;
  for (const Use& use : uses(output.node())) {
    if (use.input >= 0 && use.user->input(use.input) == output) {
      found.push_back(use);
    }
  }
  return found;
}

bool NodeMerger::MarkBehind(const std::vector<Node*>& members, int* first,
                            int* last, std::vector<char>* behind) const {
  *first = *last = place_[members[0]->id()];
  for (const Node* member : members) {
    *first = std::min(*first, place_[member->id()]);
    *last = std::max(*last, place_[member->id()]);
  }
  constexpr char kBehind = 1, kMember = 2;
  behind->assign(*last - *first + 1, 0);
  for (const Node* member : members) {
    (*behind)[place_[member->id()] - *first] = kMember;
  }
  std::vector<const Node*> stack(members.begin(), members.end());
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    const bool inside = (*behind)[place_[node->id()] - *first] == kMember;
    for (const Use& use : uses(*node)) {
      const int place = place_[use.user->id()];
      if (place > *last) continue;
      char& mark = (*behind)[place - *first];
      if (mark == kMember && !inside) return false;
      if (mark != 0) continue;
      mark = kBehind;
      stack.push_back(use.user);
    }
  }
  return true;
}

bool NodeMerger::WritesAreFree(const std::vector<Node*>& members) {
  std::set<const Node*> writers, written;
  for (const Node* member : members) {
    for (int i = 0; i < member->mutates(); ++i) {
      writers.insert(member);
      if (!written.insert(&member->input(i).node()).second) return false;
    }
  }
  if (writers.empty()) return true;
  return std::none_of(members.begin(), members.end(), [&](const Node* member) {
    const auto& waits = member->control_inputs();
    return std::any_of(waits.begin(), waits.end(),
                       [&](Node* from) { return writers.contains(from); }) ||
           std::any_of(member->inputs().begin(), member->inputs().end(),
                       [&](const Output& input) {
                         return writers.contains(&input.node());
                       });
  });
}

bool NodeMerger::CanMerge(const std::vector<Node*>& members) const {
  for (const Node* member : members) {
    if (member->device() != members[0]->device()) return false;
  }
  if (!WritesAreFree(members)) return false;
  int first, last;
  std::vector<char> behind;
  return MarkBehind(members, &first, &last, &behind);
}

void NodeMerger::RemoveUses(const std::vector<Node*>& users) {
  // Each list is swept once, however many of the users are in it.
  std::vector<char> leaves(uses_.size());
  std::vector<const Node*> sources;
  for (const Node* user : users) {
    leaves[user->id()] = 1;
    for (const Output& input : user->inputs()) {
      sources.push_back(&input.node());
    }
    sources.insert(sources.end(), user->control_inputs().begin(),
                   user->control_inputs().end());
  }
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  for (const Node* source : sources) {
    std::erase_if(uses_[source->id()],
                  [&](const Use& use) { return leaves[use.user->id()] != 0; });
  }
}

void NodeMerger::AddUses(Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    uses_[node.input(i).node().id()].push_back({&node, i});
  }
  for (const Node* control : node.control_inputs()) {
    uses_[control->id()].push_back({&node, -1});
  }
}

void NodeMerger::Reorder(const std::vector<Node*>& members, Node& root) {
  int first, last;
  std::vector<char> behind;
  SLUICE_CHECK(MarkBehind(members, &first, &last, &behind));
  constexpr char kFree = 0, kBehind = 1;
  std::vector<Node*> order;
  auto take = [&](char wanted) {
    for (int p = first; p <= last; ++p) {
      if (order_[p] != nullptr && behind[p - first] == wanted) {
        order.push_back(order_[p]);
      }
    }
  };
  take(kFree);
  order.push_back(&root);
  take(kBehind);
  order.resize(last - first + 1, nullptr);
  for (size_t i = 0; i < order.size(); ++i) {
    const int place = first + static_cast<int>(i);
    order_[place] = order[i];
    if (order[i] != nullptr) place_[order[i]->id()] = place;
  }
}

void NodeMerger::Merge(const std::vector<Node*>& members, Node& root,
                       const Merged& merged) {
  Reorder(members, root);
  RemoveUses(members);

  std::vector<Node*> controls;
  for (Node* member : members) {
    for (Node* control : member->control_inputs()) {
      if (std::find(members.begin(), members.end(), control) == members.end()) {
        controls.push_back(control);
      }
    }
  }
  // What is left in the members' lists are uses from outside.
  std::vector<Use> uses;
  for (Node* member : members) {
    for (const Use& use : uses_[member->id()]) {
      if (use.input >= 0) {
        const int index = merged.outputs.at(use.user->input(use.input));
        use.user->set_input(use.input, root.output(index));
        uses.push_back(use);
        continue;
      }
      // A user that waits for several members waits once from now on.
      const std::vector<Node*>& waits = use.user->control_inputs();
      const bool already =
          std::find(waits.begin(), waits.end(), &root) != waits.end();
      if (!already || member == &root) uses.push_back(use);
      std::vector<Node*> now;
      for (Node* wait : waits) {
        Node* instead = wait == member ? &root : wait;
        if (std::find(now.begin(), now.end(), instead) == now.end()) {
          now.push_back(instead);
        }
      }
      use.user->set_control_inputs(std::move(now));
    }
    uses_[member->id()].clear();
    gone_[member->id()] = member != &root;
  }
  uses_[root.id()] = std::move(uses);

  for (const Output& input : merged.inputs) {
    SLUICE_CHECK(&input.node() != &root && !gone(input.node()));
  }
  root.Become(*merged.op, merged.attrs, merged.inputs);
  root.set_output_types(merged.types);
  root.set_control_inputs({});
  for (Node* control : controls) root.AddControlInput(control);
  AddUses(root);
}

void NodeMerger::SetInputs(Node& node, std::vector<Output> inputs) {
  RemoveUses({&node});
  node.set_inputs(std::move(inputs));
  AddUses(node);
}

void NodeMerger::Drop(Node& node) {
  SLUICE_CHECK(uses(node).empty());
  RemoveUses({&node});
  order_[place_[node.id()]] = nullptr;
  gone_[node.id()] = 1;
}

}  // namespace sluice
