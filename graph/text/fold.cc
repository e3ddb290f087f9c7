#include "graph/text/fold.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using Place = FoldedGraph::Place;
constexpr int kNone = FoldedGraph::kNone;

int Depth(std::string_view scope) {
  return scope.empty() ? 0
                       : 1 + static_cast<int>(
                                 std::count(scope.begin(), scope.end(), '/'));
}

// Folds at one level: scopes that hold scopes are opened above that depth.
class Folder {
 public:
  Folder(const Roles& roles, const std::map<std::string_view, bool>& parents,
         int level)
      : roles_(roles), parents_(parents), level_(level) {
    folded_.box_of.assign(roles.ids(), kNone);
  }

  FoldedGraph Run() {
    for (const Node* node : roles_.order()) {
      if (!roles_.Leads(*node)) continue;
      int& box = folded_.box_of[node->id()];
      if (level_ > 0 && IsUnused(*node)) {
        box = Single(Part::kForward, "unused", unused_);
      } else if (roles_.part(*node) == Part::kForward) {
        box = ForwardBox(*node);
      } else if (roles_.part(*node) == Part::kUpdate) {
        box = Single(Part::kUpdate, kUpdateScope, update_);
      }
    }
    PlaceBackward();
    for (const Node* node : roles_.order()) {
      int& box = folded_.box_of[node->id()];
      box = folded_.box_of[roles_.leader(*node).id()];
      (IsValue(*node) ? folded_.boxes[box].values : folded_.boxes[box].nodes)
          .push_back(node);
    }
    AddEdges();
    return std::move(folded_);
  }

 private:
  bool Open(std::string_view scope) const {
    if (Depth(scope) >= level_) return false;
    const auto it = parents_.find(scope);
    return scope.empty() || (it != parents_.end() && it->second);
  }

  int AddBox(FoldedGraph::Box box) {
    const int index = static_cast<int>(folded_.boxes.size());
    for (int c = box.cluster; c != kNone; c = folded_.clusters[c].parent) {
      int& first = folded_.clusters[c].first_box;
      if (first == kNone) first = index;
    }
    folded_.boxes.push_back(std::move(box));
    return index;
  }

  // The cluster of an open scope.
  int ClusterOf(std::string_view scope) {
    if (scope.empty()) return kNone;
    if (const auto it = clusters_.find(scope); it != clusters_.end()) {
      return it->second;
    }
    const int parent = ClusterOf(ScopeOf(scope));
    folded_.clusters.push_back({std::string(scope), parent, kNone});
    return clusters_[scope] = static_cast<int>(folded_.clusters.size()) - 1;
  }

  int ForwardBox(const Node& node) {
    std::string_view scope = roles_.scope(node);
    if (Open(scope)) {
      return AddBox({.name = node.name(), .cluster = ClusterOf(scope)});
    }
    // The outermost scope that is closed.
    while (!scope.empty() && !Open(ScopeOf(scope))) scope = ScopeOf(scope);
    auto [it, added] = scope_boxes_.try_emplace(scope, kNone);
    if (added) {
      const int cluster = scope.empty() ? kNone : ClusterOf(ScopeOf(scope));
      it->second = AddBox({.name = std::string(scope), .cluster = cluster});
    }
    return it->second;
  }

  // Without any edge: a feed of the whole graph that the step does not read.
  bool IsUnused(const Node& node) const {
    return roles_.users(node).empty() && node.inputs().empty() &&
           node.control_inputs().empty() && !node.op().sink;
  }

  // The one box of its kind, made when it is first wanted.
  int Single(Part part, std::string_view name, int& index) {
    if (index == kNone) {
      index = AddBox({.part = part, .name = std::string(name)});
    }
    return index;
  }

  // What is folded into one for those who look at it from outside.
  Place GroupOf(int box) const {
    const int cluster = folded_.boxes[box].cluster;
    return cluster == kNone ? Place{.box = box} : Place{.cluster = cluster};
  }

  // Where the layer is whose gradients a name "gradients/<node>/..." says.
  Place Differentiated(std::string_view name) const {
    for (std::string_view above = DifferentiatedName(name); !above.empty();
         above = ScopeOf(above)) {
      const Node* node = roles_.graph().Find(above);
      if (node != nullptr && roles_.part(*node) == Part::kForward) {
        return GroupOf(folded_.box_of[roles_.leader(*node).id()]);
      }
      // Passes remove nodes; their scopes still say where.
      if (const auto it = scope_boxes_.find(above); it != scope_boxes_.end()) {
        return GroupOf(it->second);
      }
      if (const auto it = clusters_.find(above); it != clusters_.end()) {
        return {.cluster = it->second};
      }
    }
    const auto whole = scope_boxes_.find("");
    return whole == scope_boxes_.end() ? Place() : Place{.box = whole->second};
  }

  void PlaceBackward() {
    std::map<int, Place> places;  // by id, those known
    const auto known = [&](const Node& node) {
      return places.contains(node.id());
    };
    std::vector<const Node*> nodes;
    for (const Node* node : roles_.order()) {
      if (!roles_.Leads(*node) || folded_.box_of[node->id()] != kNone) continue;
      nodes.push_back(node);
      // The sum of what the users of one tensor send back has no such name.
      Place place = Differentiated(node->name());
      if (place == Place()) {
        const Node* operand = roles_.LatestOperand(*node, known);
        if (operand != nullptr) place = places[operand->id()];
      }
      if (place != Place()) places[node->id()] = place;
    }
    // Nor have those that begin: they go with what uses them.
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      for (const Node* user : roles_.users(**it)) {
        if (!known(**it) && known(*user)) {
          places[(*it)->id()] = places[user->id()];
        }
      }
    }
    std::map<Place, int> boxes;
    for (const Node* node : nodes) {
      const Place of = places[node->id()];
      auto [it, added] = boxes.try_emplace(of, kNone);
      if (added) {
        it->second =
            AddBox({.part = Part::kBackward, .name = NameOf(of), .of = of});
      }
      folded_.box_of[node->id()] = it->second;
    }
  }

  std::string NameOf(const Place& place) const {
    return place.cluster != kNone ? folded_.clusters[place.cluster].name
           : place.box != kNone   ? folded_.boxes[place.box].name
                                  : "";
  }

  FoldedGraph::Edge* EdgeBetween(const Node& from, const Node& to) {
    const int source = folded_.box_of[from.id()];
    const int target = folded_.box_of[to.id()];
    if (IsValue(from) || source == target) return nullptr;
    const bool leaves = folded_.boxes[source].part == Part::kForward &&
                        folded_.boxes[target].part != Part::kForward;
    const Place place = leaves ? GroupOf(source) : Place{.box = source};
    auto [it, added] =
        edge_of_.try_emplace(std::pair(place, target), folded_.edges.size());
    if (added) folded_.edges.push_back({.from = place, .to = target});
    return &folded_.edges[it->second];
  }

  void AddEdges() {
    for (const Node* node : roles_.order()) {
      for (const Output& input : node->inputs()) {
        FoldedGraph::Edge* edge = EdgeBetween(input.node(), *node);
        if (edge == nullptr) continue;
        auto& tensors = edge->tensors;
        if (std::find(tensors.begin(), tensors.end(), input) == tensors.end()) {
          tensors.push_back(input);
        }
      }
      for (const Node* control : node->control_inputs()) {
        FoldedGraph::Edge* edge = EdgeBetween(*control, *node);
        if (edge != nullptr) edge->control = true;
      }
    }
  }

  const Roles& roles_;
  const std::map<std::string_view, bool>& parents_;
  const int level_;
  FoldedGraph folded_;
  std::map<std::string_view, int> clusters_, scope_boxes_;
  std::map<std::pair<Place, int>, size_t> edge_of_;
  int update_ = kNone, unused_ = kNone;
};

}  // namespace

FoldedGraph Fold(const Graph& graph, int max_boxes) {
  constexpr int kDeepest = 8;  // clusters in clusters that one can tell apart
  const Roles roles(graph);
  // Every scope of the forward part, and whether it holds others.
  std::map<std::string_view, bool> parents;
  int level = 1;
  for (const Node* node : roles.order()) {
    if (!roles.Leads(*node) || roles.part(*node) != Part::kForward) continue;
    std::string_view scope = roles.scope(*node);
    level = std::clamp(Depth(scope), level, kDeepest);
    parents.try_emplace(scope, false);
    for (; !scope.empty(); scope = ScopeOf(scope)) {
      parents[ScopeOf(scope)] = true;
    }
  }
  for (;; --level) {
    FoldedGraph folded = Folder(roles, parents, level).Run();
    if (level == 0 || std::ssize(folded.boxes) <= max_boxes) return folded;
  }
}

}  // namespace sluice
