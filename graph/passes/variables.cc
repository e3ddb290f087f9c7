// Reads and writes of variables, and the order of collectives. A variable's
// bytes are seen through the Variable node, the results of its writes, and
// views of these; the writes w[0], w[1], ... of one variable are totally
// ordered by the graph. So each read is of one version (-1: the value at the
// start of the step, i: what w[i] left) and has to come before w[version + 1],
// which destroys it.
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "engine/ceil_div.h"
#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

// A set of writes for each node.
class WriteSets {
 public:
  WriteSets(size_t nodes, size_t writes)
      : words_(CeilDiv(writes, size_t{64})), bits_(nodes * words_) {}
  void Insert(int node, int write) {
    bits_[node * words_ + write / 64] |= uint64_t{1} << (write % 64);
  }
  bool Has(int node, int write) const {
    return bits_[node * words_ + write / 64] >> (write % 64) & 1;
  }
  void InsertAllOf(int to, int from) {
    for (size_t i = 0; i < words_; ++i) {
      bits_[to * words_ + i] |= bits_[from * words_ + i];
    }
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

// The nodes that no order can reach, because they lie on a cycle or behind one.
std::unordered_set<const Node*> Stuck(const Graph& graph) {
  Countdown countdown(graph);
  std::vector<const Node*> ready;
  const auto push = [&](const Node* node) { ready.push_back(node); };
  countdown.Start(push);
  while (!ready.empty()) {
    const Node* node = ready.back();
    ready.pop_back();
    countdown.Finish(*node, push);
  }
  std::unordered_set<const Node*> stuck;
  for (const auto& node : graph.nodes()) {
    if (countdown.Waits(*node)) stuck.insert(node.get());
  }
  return stuck;
}

class Orderer {
 public:
  explicit Orderer(Graph& graph)
      : graph_(graph), order_(graph.TopologicalOrder()) {}

  Status Run() {
    SLUICE_RETURN_IF_ERROR(FindWrites());
    if (!writes_.empty()) SLUICE_RETURN_IF_ERROR(FindReads());
    OrderCollectives();  // what is read does not hang on it
    if (writes_.empty()) return {};
    AddEdges();
    Renumber();
    graph_.TopologicalOrder();  // throws on a cycle
    return {};
  }

 private:
  // A use of the Variable node or of a write's result; of the Variable node as
  // `after` leaves it (or null).
  struct Use {
    Node* user = nullptr;
    int input = 0;
    Output of;
    Node* after = nullptr;
  };
  // What `user` reads through `use`, its own or that of the first of the views
  // on the way, must come before a write.
  struct Read {
    Node* user;
    Node* write;
    Use use;
  };
  // A handle on a variable's bytes. The version that the Variable node itself
  // stands for is settled by each of its users.
  struct Alias {
    Output output;
    bool settled;
    int version;
    Use use;  // for a view
  };

  Status FindWrites() {
    place_.resize(graph_.nodes().empty() ? 0 : graph_.nodes().back()->id() + 1);
    for (size_t p = 0; p < order_.size(); ++p) {
      Node* node = order_[p];
      place_[node->id()] = static_cast<int>(p);
      if (node->mutates() == 0) continue;
      number_[node] = static_cast<int>(writes_.size());
      writes_.push_back(node);
      for (int i = 0; i < node->mutates(); ++i) {
        Node& variable = node->input(i).node();
        if (!variable.IsVariable()) {
          return InvalidArgument(
              fmt::format("{}: updates '{}', a {}, wanted a Variable ({})",
                          node->Describe(), node->input(i).name(),
                          variable.op().name, node->location()));
        }
        writes_of_[&variable].push_back(node);
      }
    }
    return {};
  }

  // Which version each read is of, and so before which write it comes.
  Status FindReads() {
    FindPaths();
    for (Node* node : order_) {
      auto it = writes_of_.find(node);
      if (it == writes_of_.end()) continue;
      SLUICE_RETURN_IF_ERROR(CheckOrdered(*node, it->second));
      VisitReads(*node, it->second);
    }
    return {};
  }

  // Each depends on the one that was made before it, which is the same one on
  // all workers: only the reads and writes of the step move them.
  void OrderCollectives() {
    Node* before = nullptr;
    for (Node* node : order_) {
      if (!node->op().collective) continue;
      if (before != nullptr) node->AddControlInput(before);
      before = node;
    }
  }

  // before_: the writes a node depends on; after_: those that depend on it.
  void FindPaths() {
    const int n = static_cast<int>(order_.size());
    before_ = WriteSets(n, writes_.size());
    after_ = WriteSets(n, writes_.size());
    users_.resize(n);
    for (int p = 0; p < n; ++p) {
      Node* node = order_[p];
      auto follow = [&](const Node* earlier) {
        before_.InsertAllOf(p, PlaceOf(*earlier));
        auto it = number_.find(earlier);
        if (it != number_.end()) before_.Insert(p, it->second);
      };
      for (int i = 0; i < node->num_inputs(); ++i) {
        follow(&node->input(i).node());
        users_[PlaceOf(node->input(i).node())].push_back({node, i});
      }
      for (const Node* control : node->control_inputs()) follow(control);
    }
    for (int p = n - 1; p >= 0; --p) {
      auto precede = [&](const Node* earlier) {
        const int q = PlaceOf(*earlier);
        after_.InsertAllOf(q, p);
        auto it = number_.find(order_[p]);
        if (it != number_.end()) after_.Insert(q, it->second);
      };
      for (const Output& input : order_[p]->inputs()) precede(&input.node());
      for (const Node* control : order_[p]->control_inputs()) precede(control);
    }
  }

  int PlaceOf(const Node& node) const { return place_[node.id()]; }

  bool DependsOn(const Node& node, const Node& write) const {
    return before_.Has(PlaceOf(node), number_.at(&write));
  }

  Status CheckOrdered(const Node& variable,
                      const std::vector<Node*>& writes) const {
    for (size_t i = 1; i < writes.size(); ++i) {
      const Node& a = *writes[i - 1];
      const Node& b = *writes[i];
      if (DependsOn(b, a)) continue;
      return InvalidArgument(fmt::format(
          "variable '{}': {} ({}) and {} ({}) both write it and neither "
          "depends on the other; order them with a control edge: build the "
          "one inside a ControlScope of the other's operation",
          variable.name(), a.Describe(), a.location(), b.Describe(),
          b.location()));
    }
    return {};
  }

  void VisitReads(Node& variable, const std::vector<Node*>& writes) {
    std::vector<Alias> aliases = {{variable.output(0), false, -1, {}}};
    for (size_t i = 0; i < writes.size(); ++i) {
      if (&writes[i]->input(0).node() == &variable) {
        aliases.push_back(
            {writes[i]->output(0), true, static_cast<int>(i), {}});
      }
    }
    while (!aliases.empty()) {
      const Alias alias = aliases.back();
      aliases.pop_back();
      const Node& source = alias.output.node();
      for (const auto& [user, input] : users_[PlaceOf(source)]) {
        if (user->input(input) != alias.output) continue;
        if (input < user->mutates()) continue;
        const int version =
            alias.settled ? alias.version : LastBefore(*user, writes);
        Node* const next = version + 1 < static_cast<int>(writes.size())
                               ? writes[version + 1]
                               : nullptr;
        Use use = alias.use;
        if (use.user == nullptr) {
          use = {user, input, alias.output,
                 alias.settled || version < 0 ? nullptr : writes[version]};
        }
        // A view that comes after the next write is of a copy made before it.
        if (user->op().view && input == 0 &&
            user->device() == source.device() &&
            (next == nullptr || !DependsOn(*user, *next))) {
          aliases.push_back({user->output(0), true, version, use});
          continue;
        }
        if (use.after != nullptr && user == use.user &&
            user->device() != variable.device()) {
          use = {user, input, ReadAfter(alias.output, *use.after), nullptr};
          user->set_input(input, use.of);
        }
        if (next != nullptr) NoteRead({user, next, use});
      }
    }
  }

  // The last of `writes` that the node depends on, or -1.
  int LastBefore(const Node& node, const std::vector<Node*>& writes) const {
    int i = static_cast<int>(writes.size()) - 1;
    while (i >= 0 && !DependsOn(node, *writes[i])) --i;
    return i;
  }

  void NoteRead(const Read& read) {
    // A write of one variable has read each element before it writes there. One
    // of several, such as an optimizer's, may have written a slot by the time
    // it reads it as its gradient; one of some rows, another row.
    if (read.user == read.write) {
      if (read.user->mutates() > 1 || read.user->op().scatters) {
        copied_.push_back(read);
      }
      return;
    }
    if (DependsOn(*read.user, *read.write)) {
      copied_.push_back(read);
    } else if (!after_.Has(PlaceOf(*read.user), number_.at(read.write))) {
      ordered_.push_back(read);
    }
  }

  // The variable as `write` leaves it, as a node that other devices can read.
  Output ReadAfter(const Output& variable, Node& write) {
    Node*& view = views_[{&variable.node(), &write}];
    if (view == nullptr) {
      view = &AddNew("after", "Identity", variable);
      view->AddControlInput(&write);
      behind_[&write].push_back(view);
    }
    return view->output(0);
  }

  // What a read is of, as it is before read.write, which will not wait for it,
  // nor for what views on the way wait for: that might close a cycle.
  Output CopyBefore(const Read& read) {
    Node*& copy = copies_[{read.use.of, read.write}];
    if (copy == nullptr) {
      copy = &AddNew("before", "Copy", read.use.of);
      if (read.use.after != nullptr) copy->AddControlInput(read.use.after);
      read.write->AddControlInput(copy);
      ahead_[read.write].push_back(copy);
    }
    return copy->output(0);
  }

  Node& AddNew(std::string_view suffix, std::string_view op,
               const Output& alias) {
    const std::string name =
        graph_.UniqueName(fmt::format("{}/{}", alias.node().name(), suffix));
    Node& node = graph_.AddRaw(name, name, OpTable::Global().Get(op), {},
                               {alias}, {alias.type()});
    node.set_device(alias.node().device());
    node.set_location(alias.node().location());
    return node;
  }

  void AddEdges() {
    std::unordered_map<Node*, std::vector<Node*>> before;  // control inputs
    for (const Read& read : ordered_) {
      before.emplace(read.write, read.write->control_inputs());
      read.write->AddControlInput(read.user);
    }
    // Two writes may each read what the other destroys (a swap), or a
    // collective come after a write whose readers wait for a later one: then
    // some of the readers cannot come before the write and get copies, too.
    const auto stuck = Stuck(graph_);
    if (!stuck.empty()) {
      for (auto& [write, controls] : before) {
        write->set_control_inputs(controls);
      }
      for (const Read& read : ordered_) {
        if (stuck.contains(read.user) && stuck.contains(read.write)) {
          copied_.push_back(read);
        } else {
          read.write->AddControlInput(read.user);
        }
      }
    }
    for (const Read& read : copied_) {
      read.use.user->set_input(read.use.input, CopyBefore(read));
    }
  }

  void Renumber() {
    if (ahead_.empty() && behind_.empty()) return;
    std::vector<Node*> order;
    for (Node* node : order_) {
      auto ahead = ahead_.find(node);
      if (ahead != ahead_.end()) {
        order.insert(order.end(), ahead->second.begin(), ahead->second.end());
      }
      order.push_back(node);
      auto behind = behind_.find(node);
      if (behind != behind_.end()) {
        order.insert(order.end(), behind->second.begin(), behind->second.end());
      }
    }
    graph_.Renumber(order);
  }

  Graph& graph_;
  const std::vector<Node*> order_;
  std::vector<int> place_;                                 // in order_, by id
  std::vector<std::vector<std::pair<Node*, int>>> users_;  // by place
  std::vector<Node*> writes_;
  std::unordered_map<const Node*, int> number_;                    // in writes_
  std::unordered_map<const Node*, std::vector<Node*>> writes_of_;  // in order
  WriteSets before_{0, 0}, after_{0, 0};
  std::vector<Read> ordered_, copied_;
  std::map<std::pair<const Node*, const Node*>, Node*> views_;
  std::map<std::pair<Output, const Node*>, Node*> copies_;
  std::unordered_map<const Node*, std::vector<Node*>> ahead_, behind_;
};

}  // namespace

Status OrderVariables(Graph& graph) {
  try {
    return Orderer(graph).Run();
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace sluice::passes
