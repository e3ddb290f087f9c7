#include "dist/servers/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "dist/servers/shares.h"
#include "engine/device.h"
#include "graph/row_pieces.h"

namespace sluice::dist {
namespace {

class Placer {
 public:
  Placer(Graph& graph, const std::string& worker,
         const std::vector<std::string>& servers, const CutFrom& cut_from,
         const std::vector<Output>& decided)
      : worker_(worker),
        servers_(servers),
        hosts_(HostsOf(servers)),
        decided_(decided),
        order_(graph.TopologicalOrder()),
        shares_(graph, order_, servers, cut_from) {
    for (const Node* node : order_) {
      for (const Output& input : node->inputs()) {
        users_[&input.node()].push_back(node);
      }
    }
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
    for (PlaceAll(); shares_.FindWholes(); PlaceAll()) {
      for (Node* node : open) Unplace(*node);
    }
    return {};
  }

 private:
  void PlaceAll() {
    shares_.ShareOut();
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
    const auto among = [&](const std::vector<std::string>& devices) {
      return std::find(devices.begin(), devices.end(), device) != devices.end();
    };
    return among(servers_) || among(hosts_);
  }

  // Of a variable: its rows travel, and which they are to be.
  static bool TakesRows(const Node& node) {
    const RowsTakenFn rows_taken = node.op().rows_taken;
    return rows_taken != nullptr && node.input(0).node().IsVariable() &&
           rows_taken(node).valid();
  }

  static void Unplace(Node& node) {
    node.set_device("");
    if (SpreadsRows(node)) UnspreadRows(node);
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
      if (largest == nullptr ||
          input.type().bytes() > largest->type().bytes()) {
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
  const std::vector<std::string> hosts_;
  const std::vector<Output>& decided_;
  const std::vector<Node*> order_;
  Shares shares_;
  std::unordered_map<const Node*, std::vector<const Node*>> users_;
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
