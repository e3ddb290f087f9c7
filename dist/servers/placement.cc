#include "dist/servers/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/dtype.h"
#include "graph/row_division.h"
#include "graph/row_pieces.h"

namespace sluice::dist {
namespace {

// Variables that are on one server together, by their first one's number.
class Groups {
 public:
  explicit Groups(size_t count = 0) : first_(count) {
    std::iota(first_.begin(), first_.end(), size_t{0});
  }
  size_t Of(size_t i) const {
    while (first_[i] != i) i = first_[i];
    return i;
  }
  void Join(size_t a, size_t b) {
    a = Of(a);
    b = Of(b);
    first_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> first_;
};

int64_t BytesOf(const Output& variable) {
  return variable.shape().elements() *
         static_cast<int64_t>(SizeOf(variable.dtype()));
}

// Below that a piece costs more as a message than its bytes do.
constexpr int64_t kLeastToCut = 1 << 20;
// Of a server's even share, what no dense variable is to be more than.
constexpr int64_t kShares = 8;

class Placer {
 public:
  Placer(Graph& graph, const std::string& worker,
         const std::vector<std::string>& servers, const CutFrom& cut_from,
         const std::vector<Output>& decided)
      : worker_(worker),
        servers_(servers),
        cut_from_(cut_from),
        decided_(decided),
        variables_(graph.Variables()),
        order_(graph.TopologicalOrder()) {
    for (const Node* node : order_) {
      for (const Output& input : node->inputs()) {
        users_[&input.node()].push_back(node);
      }
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      numbers_[&variables_[i].node()] = i;
    }
    groups_ = Grouped();
  }

  Status Run() {
    for (const Node* node : order_) {
      const std::string& device = node->device();
      if (device.empty() || device == worker_ || IsServer(device)) continue;
      return InvalidArgument(fmt::format(
          "{}: it is to be on '{}', which is neither this worker's device nor "
          "a parameter server's ({}, {}) ({})",
          node->Describe(), device, worker_, fmt::join(servers_, ", "),
          node->location()));
    }
    std::vector<Node*> open;
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(open),
                 [](const Node* node) { return node->device().empty(); });
    for (PlaceAll(); FindWholes(); PlaceAll()) {
      for (Node* node : open) Unplace(*node);
    }
    return {};
  }

 private:
  void PlaceAll() {
    ShareOut();
    for (Node* node : order_) {
      const bool beside =
          node->mutates() > 0 || (node->device().empty() && TakesRows(*node));
      if (beside) node->set_device(node->input(0).node().device());
    }
    FindIndependent();
    // Users come before what they use.
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
      if ((*node)->device().empty()) Follow(**node);
    }
    for (Node* node : order_) {
      if (node->device().empty() && !node->IsConstant()) Settle(*node);
    }
  }

  bool IsServer(const std::string& device) const {
    return std::find(servers_.begin(), servers_.end(), device) !=
           servers_.end();
  }

  // Of a variable: its rows travel, and which they are to be.
  static bool TakesRows(const Node& node) {
    const RowsTakenFn rows_taken = node.op().rows_taken;
    return rows_taken != nullptr && node.input(0).node().IsVariable() &&
           rows_taken(node).valid();
  }

  // How many a variable has that is a table or its slot: read, if at all, by
  // Gather, and updated by rows; 0 of others.
  int64_t RowsOfTable(const Node& variable) const {
    const Shape& shape = variable.output_type(0).shape;
    if (shape.rank() == 0) return 0;
    const auto users = users_.find(&variable);
    if (users == users_.end()) return 0;
    for (const Node* user : users->second) {
      for (int i = 0; i < user->num_inputs(); ++i) {
        if (&user->input(i).node() == &variable && !UsesRowsAlone(*user, i)) {
          return 0;
        }
      }
      // Nobody has its new value at hand.
      if (user->mutates() > 0 && users_.contains(user)) return 0;
    }
    return shape[0];
  }

  Groups Grouped() const {
    Groups groups(variables_.size());
    std::map<std::string_view, size_t> by_name;
    for (size_t i = 0; i < variables_.size(); ++i) {
      by_name.emplace(variables_[i].node().name(), i);
    }
    for (const auto& [name, i] : by_name) {
      const auto owner = by_name.find(name.substr(0, name.rfind('/')));
      if (owner != by_name.end()) groups.Join(owner->second, i);
    }
    for (const Node* node : order_) {
      for (int i = 1; i < node->mutates(); ++i) {
        groups.Join(numbers_.at(&node->input(0).node()),
                    numbers_.at(&node->input(i).node()));
      }
    }
    return groups;
  }

  // Variables that are on one server together, or cut alike.
  struct Load {
    int64_t bytes = 0;
    std::string device;  // that one of it asks for
    int64_t rows = 0;    // of all of it, a table; 0: it is none
    Shape shape;         // of all of it; a scalar's where they differ
    std::vector<std::string> over;  // the servers that have rows of it
  };

  std::map<size_t, Load> FindLoads() const {
    std::map<size_t, Load> loads;  // by the group's first, in order
    for (size_t i = 0; i < variables_.size(); ++i) {
      const auto [entry, begins] = loads.try_emplace(groups_.Of(i));
      Load& load = entry->second;
      load.bytes += BytesOf(variables_[i]);
      const std::string& asked = variables_[i].node().device();
      if (load.device.empty()) load.device = asked;
      const int64_t rows = RowsOfTable(variables_[i].node());
      load.rows = begins || load.rows == rows ? rows : 0;
      const Shape& shape = variables_[i].shape();
      load.shape = begins || load.shape == shape ? shape : Shape();
    }
    return loads;
  }

  int64_t DenseFrom(const std::map<size_t, Load>& loads) const {
    if (cut_from_.dense) return *cut_from_.dense;
    int64_t all = 0;
    for (const auto& [first, load] : loads) all += load.bytes;
    return std::max(kLeastToCut,
                    all / static_cast<int64_t>(servers_.size()) / kShares);
  }

  void ShareOut() {
    std::map<size_t, Load> loads = FindLoads();
    const int64_t dense_from = DenseFrom(loads);
    std::vector<size_t> largest_first;
    std::map<std::string, int64_t> held;
    const auto cut = [&](Load& load, std::vector<std::string> over) {
      for (const RowPiece& piece : CutRows(load.shape[0], over)) {
        held[piece.device] +=
            load.bytes / load.shape[0] * (piece.end - piece.begin);
      }
      load.over = std::move(over);
    };
    for (auto& [first, load] : loads) {
      const bool table = load.rows > 0 && load.device.empty() &&
                         load.bytes >= cut_from_.tables;
      if (table) {
        cut(load, servers_);
        continue;
      }
      largest_first.push_back(first);
      held[load.device] += load.bytes;
    }
    std::stable_sort(
        largest_first.begin(), largest_first.end(),
        [&](size_t a, size_t b) { return loads[a].bytes > loads[b].bytes; });
    for (const size_t first : largest_first) {
      Load& load = loads[first];
      if (!load.device.empty()) continue;
      std::vector<std::string> least_first = servers_;
      std::stable_sort(least_first.begin(), least_first.end(),
                       [&](const std::string& a, const std::string& b) {
                         return held[a] < held[b];
                       });
      const bool parts = load.rows == 0 && load.bytes >= dense_from &&
                         load.shape.rank() > 0 && !whole_.contains(first) &&
                         CutRows(load.shape[0], servers_).size() > 1;
      if (parts) {
        cut(load, std::move(least_first));
        continue;
      }
      load.device = least_first[0];
      held[load.device] += load.bytes;
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      Node& node = variables_[i].node();
      const Load& load = loads[groups_.Of(i)];
      if (!load.over.empty()) {
        SpreadRows(node, load.over);
      } else if (node.device().empty()) {
        node.set_device(load.device);
      }
    }
  }

  // Finds more groups of dense variables that cannot be cut: a server would
  // have to join them, for a norm of slots, for example, or an update does not
  // go element by element. A worker has what it reads as a whole in any case.
  bool FindWholes() {
    const RowDivision division(order_);
    const size_t before = whole_.size();
    for (const Node* node : order_) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Node* const of = division.Of(node->input(i));
        if (of == nullptr) continue;
        const bool joins =
            !division.TakesPieces(*node, i) && IsServer(node->device());
        const bool divided = division.Of(*node) != nullptr;
        if (joins || (i < node->mutates() && !divided)) {
          whole_.insert(groups_.Of(numbers_.at(of)));
        }
      }
    }
    return whole_.size() > before;
  }

  static void Unplace(Node& node) {
    node.set_device("");
    if (SpreadsRows(node)) JoinRows(node);
  }

  // What no batch has a part in, and of this what is by a decision.
  void FindIndependent() {
    for (const Node* node : order_) {
      const auto& inputs = node->inputs();
      const bool decided =
          std::any_of(decided_.begin(), decided_.end(),
                      [&](const Output& each) { return &each.node() == node; });
      independent_[node] =
          decided ||
          (!node->IsPlaceholder() &&
           std::all_of(inputs.begin(), inputs.end(), [&](const Output& input) {
             return independent_[&input.node()];
           }));
      by_decision_[node] =
          decided ||
          (independent_[node] &&
           std::any_of(inputs.begin(), inputs.end(), [&](const Output& input) {
             return by_decision_[&input.node()];
           }));
    }
  }

  // Goes to the server that all who use it are on, where that spares a way.
  void Follow(Node& node) {
    const auto users = users_.find(&node);
    if (users == users_.end() || node.IsConstant() || node.IsPlaceholder()) {
      return;
    }
    const std::string& device = users->second[0]->device();
    const bool together =
        IsServer(device) &&
        std::all_of(users->second.begin(), users->second.end(),
                    [&](const Node* user) { return user->device() == device; });
    if (!together) return;
    const bool reads_there = std::any_of(
        node.inputs().begin(), node.inputs().end(), [&](const Output& input) {
          return input.node().IsVariable() && input.node().device() == device &&
                 input.shape() == node.output_type(0).shape;
        });
    if (independent_[&node] || (node.op().elementwise && reads_there)) {
      node.set_device(device);
    }
  }

  // The largest operand on a server; null: none is.
  const Output* LargestOnServer(const Node& node) const {
    const Output* largest = nullptr;
    for (const Output& input : node.inputs()) {
      if (!IsServer(input.node().device())) continue;
      if (largest == nullptr || BytesOf(input) > BytesOf(*largest)) {
        largest = &input;
      }
    }
    return largest;
  }

  // Scalars of variables alone are computed where these are: several servers
  // may want them.
  void Settle(Node& node) {
    if (by_decision_[&node]) {
      const Output* const largest = LargestOnServer(node);
      node.set_device(largest != nullptr ? largest->node().device() : worker_);
      return;
    }
    const auto beside = std::find_if(
        node.inputs().begin(), node.inputs().end(), [&](const Output& input) {
          return IsServer(input.node().device()) && input.shape().scalar();
        });
    const bool scalar = node.num_outputs() == 1 &&
                        node.output_type(0).shape.scalar() &&
                        independent_[&node];
    node.set_device(scalar && beside != node.inputs().end()
                        ? beside->node().device()
                        : worker_);
  }

  const std::string& worker_;
  const std::vector<std::string>& servers_;
  const CutFrom& cut_from_;
  const std::vector<Output>& decided_;
  const std::vector<Output> variables_;
  const std::vector<Node*> order_;
  std::unordered_map<const Node*, std::vector<const Node*>> users_;
  std::unordered_map<const Node*, size_t> numbers_;  // in variables_
  Groups groups_;
  std::set<size_t> whole_;  // groups that are not to be cut, by their first
  std::unordered_map<const Node*, bool> independent_, by_decision_;
};

}  // namespace

Status PlaceOnServers(Graph& graph, const std::string& worker,
                      const std::vector<std::string>& servers,
                      const CutFrom& cut_from,
                      const std::vector<Output>& decided) {
  if (servers.empty()) return InvalidArgument("there are no servers");
  return Placer(graph, worker, servers, cut_from, decided).Run();
}

Output CountLast(const Operation& train, const Output& counter) {
  Graph& graph = train.node().graph();
  Node* count = nullptr;
  std::map<std::string, std::vector<Node*>> updates;  // by device
  for (Node* node : train.node().control_inputs()) {
    const bool counts = node->mutates() > 0 && node->input(0) == counter;
    if (counts) {
      count = node;
    } else if (node->mutates() > 0) {
      updates[node->device()].push_back(node);
    }
  }
  SLUICE_CHECK(count != nullptr);
  // One word from each other server, not one of each variable.
  for (const auto& [device, nodes] : updates) {
    const std::string name = graph.UniqueName("applied");
    Node& all =
        graph.AddRaw(name, name, OpTable::Global().Get("NoOp"), {}, {}, {});
    all.set_device(device);
    for (Node* node : nodes) all.AddControlInput(node);
    count->AddControlInput(&all);
  }
  return count->output(0);
}

}  // namespace sluice::dist
