#include "dist/servers/shares.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "engine/device.h"
#include "graph/row_division.h"
#include "graph/row_pieces.h"

namespace sluice::dist {
namespace {

// Below that a piece costs more as a message than its bytes do.
constexpr int64_t kLeastToCut = 1 << 20;
// Of a server's even share, what no dense variable is to be more than.
constexpr int64_t kShares = 8;

}  // namespace

Groups::Groups(size_t count) : first_(count) {
  std::iota(first_.begin(), first_.end(), size_t{0});
}

void Groups::Join(size_t a, size_t b) {
  a = Of(a);
  b = Of(b);
  first_[std::max(a, b)] = std::min(a, b);
}

Shares::Shares(const Graph& graph, const std::vector<Node*>& order,
               const std::vector<std::string>& servers, const CutFrom& cut_from)
    : order_(order),
      servers_(servers),
      hosts_(HostsOf(servers)),
      cut_from_(cut_from),
      variables_(graph.Variables()),
      groups_(variables_.size()) {
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

// How many a variable has that is a table or its slot: read, if at all, by
// Gather, and updated by rows; 0 of others.
int64_t Shares::RowsOfTable(const Node& variable) const {
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

Groups Shares::Grouped() const {
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

std::map<size_t, Shares::Load> Shares::FindLoads() const {
  std::map<size_t, Load> loads;  // by the group's first, in order
  for (size_t i = 0; i < variables_.size(); ++i) {
    const auto [entry, begins] = loads.try_emplace(groups_.Of(i));
    Load& load = entry->second;
    load.bytes += static_cast<int64_t>(variables_[i].type().bytes());
    const std::string& asked = variables_[i].node().device();
    if (load.device.empty()) load.device = asked;
    const int64_t rows = RowsOfTable(variables_[i].node());
    load.rows = begins || load.rows == rows ? rows : 0;
    const Shape& shape = variables_[i].shape();
    load.shape = begins || load.shape == shape ? shape : Shape();
  }
  return loads;
}

int64_t Shares::DenseFrom(const std::map<size_t, Load>& loads) const {
  if (cut_from_.dense) return *cut_from_.dense;
  int64_t all = 0;
  for (const auto& [first, load] : loads) all += load.bytes;
  return std::max(kLeastToCut,
                  all / static_cast<int64_t>(servers_.size()) / kShares);
}

void Shares::ShareOut() {
  std::map<size_t, Load> loads = FindLoads();
  const int64_t dense_from = DenseFrom(loads);
  std::vector<size_t> largest_first;
  std::map<std::string, int64_t> held;
  const auto cut = [&](Load& load, int64_t rows,
                       std::vector<std::string> over) {
    for (const RowPiece& piece : CutRows(rows, over)) {
      held[piece.device] += load.bytes / rows * (piece.end - piece.begin);
    }
    load.over = std::move(over);
  };
  for (auto& [first, load] : loads) {
    const bool table =
        load.rows > 0 && load.device.empty() && load.bytes >= cut_from_.tables;
    if (table) {
      cut(load, load.rows, hosts_);
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
      cut(load, load.shape[0], std::move(least_first));
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

// On GPUs that would be on the host, which had to fetch the piece as a whole
// (graph/passes/spread_rows.cc). Tables are cut over the hosts themselves.
bool Shares::CountsRows(const Node& user, int i, const Node& variable) const {
  return &user.input(i).node() == &variable && !user.IsInitializer() &&
         UsesRowsAlone(user, i) &&
         std::find(hosts_.begin(), hosts_.end(), variable.device()) ==
             hosts_.end();
}

bool Shares::FindWholes() {
  const RowDivision division(order_);
  const size_t before = whole_.size();
  for (const Node* node : order_) {
    const bool on_server = std::find(servers_.begin(), servers_.end(),
                                     node->device()) != servers_.end();
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node* const of = division.Of(node->input(i));
      if (of == nullptr) continue;
      const bool joins = on_server && !division.TakesPieces(*node, i);
      const bool divided = division.Of(*node) != nullptr;
      if (joins || (i < node->mutates() && !divided) ||
          CountsRows(*node, i, *of)) {
        whole_.insert(groups_.Of(numbers_.at(of)));
      }
    }
  }
  return whole_.size() > before;
}

}  // namespace sluice::dist
