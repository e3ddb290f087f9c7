#include "dist/servers/additive_updates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/ops/elementwise.h"
#include "graph/ops/expression.h"
#include "graph/row_pieces.h"
#include "graph/traversal.h"

namespace sluice::dist {
namespace {

// In place of a factor: there is none, or it is no number.
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double NumberOf(const Output& output) {
  const Tensor* const value = ConstantValue(output);
  return value != nullptr && value->elements() == 1 ? value->At(0) : kNone;
}

// Who has an output of a node as an operand.
using Users = std::unordered_map<const Node*, std::vector<Node*>>;

// How a variable is in what is computed of it.
class Reading {
 public:
  Reading(const Users& users, const Output& variable, const Output& value)
      : variable_(variable) {
    FindDependents(users);
    FindReaders(value);
  }

  // Who reads it; none where the value is not of it.
  const std::vector<Node*>& readers() const { return readers_; }

  // The number f where each element of the value is f times the variable's and
  // a term that is not of it; 0 where all is that term; else kNone. Knows the
  // ops that averages are made of.
  double FactorIn(const Output& value) const {
    std::map<Output, double> factors = {{variable_, 1}};
    // Depth first, without recursion: values may be of many steps.
    std::vector<Output> open = {value};
    while (!open.empty()) {
      const Output next = open.back();
      const size_t depth = open.size();
      if (!factors.contains(next)) {
        for (const Output& input : next.node().inputs()) {
          if (IsOf(input) && !factors.contains(input)) open.push_back(input);
        }
        if (open.size() > depth) continue;
        factors[next] = FactorBy(next, factors);
      }
      open.pop_back();
    }
    return factors.at(value);
  }

 private:
  // The same, by the `factors` in the node's operands that are of it.
  double FactorBy(const Output& value,
                  const std::map<Output, double>& factors) const {
    if (!IsOf(value)) return 0;
    const Node& node = value.node();
    const auto of = [&](int i) {
      const auto found = factors.find(node.input(i));
      return found == factors.end() ? 0 : found->second;
    };
    if (node.Is("Identity") || node.Is("StopGradient")) return of(0);
    if (node.Is("Cast")) return IsFloating(value.dtype()) ? of(0) : kNone;
    if (node.Is("Neg")) return -of(0);
    if (node.Is("Add")) return of(0) + of(1);
    if (node.Is("Sub")) return of(0) - of(1);
    if (node.Is("Mul")) {
      const int i = IsOf(node.input(0)) ? 0 : 1;
      return of(i) * NumberOf(node.input(1 - i));
    }
    if (node.Is("Div")) {
      return IsOf(node.input(1)) ? kNone : of(0) / NumberOf(node.input(1));
    }
    // Its running statistics are outputs in the places of those that it has.
    const int i = value.index();
    if (!node.Is("BatchNorm") || i < 3) return kNone;
    for (int other = 0; other < node.num_inputs(); ++other) {
      if (other != i && IsOf(node.input(other))) return kNone;
    }
    return of(i) * node.attrs().Float("momentum");
  }

  bool IsOf(const Output& value) const {
    return value == variable_ || dependents_.contains(&value.node());
  }

  void FindDependents(const Users& users) {
    std::vector<const Node*> open = {&variable_.node()};
    while (!open.empty()) {
      const auto found = users.find(open.back());
      open.pop_back();
      if (found == users.end()) continue;
      for (const Node* user : found->second) {
        if (dependents_.insert(user).second) open.push_back(user);
      }
    }
  }

  // Of the dependents those that the value is of, too.
  void FindReaders(const Output& value) {
    std::unordered_set<const Node*> seen;
    std::vector<Node*> open = {&value.node()};
    while (!open.empty()) {
      Node* const node = open.back();
      open.pop_back();
      if (!dependents_.contains(node) || !seen.insert(node).second) continue;
      bool reads = false;
      for (const Output& input : node->inputs()) {
        reads = reads || input == variable_;
        open.push_back(&input.node());
      }
      if (reads) readers_.push_back(node);
    }
  }

  const Output variable_;
  std::vector<Node*> readers_;
  std::unordered_set<const Node*> dependents_;
};

// Whether all read the variable on one device that is not its own.
bool SentOnce(const Output& variable, const std::vector<Node*>& readers) {
  const std::string& there = readers[0]->device();
  return there != variable.node().device() &&
         std::all_of(readers.begin(), readers.end(), [&](const Node* reader) {
           return reader->device() == there;
         });
}

struct Move {
  Node* update;  // the Assign
  std::vector<Node*> readers;
  double factor;
};

class Finder {
 public:
  explicit Finder(const Operation& train) {
    const std::vector<Node*> order = train.node().graph().TopologicalOrder();
    for (Node* node : order) {
      for (const Output& input : node->inputs()) {
        users_[&input.node()].push_back(node);
      }
      if (node->IsInitializer()) continue;
      for (int i = 0; i < node->mutates(); ++i) {
        ++writes_[&node->input(i).node()];
      }
    }
    const auto needed = Needed({&train.node()});
    for (Node* node : order) {
      if (needed.contains(node)) Visit(*node);
    }
  }

  const std::vector<Move>& moves() const { return moves_; }

 private:
  void Visit(Node& node) {
    if (!node.Is("Assign") || node.attrs().Int("first_row") >= 0) return;
    const Output& variable = node.input(0);
    const bool only = writes_[&variable.node()] == 1;
    if (!IsFloating(variable.dtype()) || !only) return;
    const Reading reading(users_, variable, node.input(1));
    const std::vector<Node*>& readers = reading.readers();
    const double factor = reading.FactorIn(node.input(1));
    if (readers.empty() || factor == 0 || std::isnan(factor)) return;
    if (SpreadsRows(variable.node()) && !SentOnce(variable, readers)) return;
    moves_.push_back({&node, readers, factor});
  }

  Users users_;
  std::unordered_map<const Node*, int> writes_;  // of a variable, but its first
  std::vector<Move> moves_;
};

void Rewrite(const Move& move) {
  Node& update = *move.update;
  Graph& graph = update.graph();
  const Output variable = update.input(0), value = update.input(1);
  const std::string server = variable.node().device();
  const LocationScope location(graph, update.location());
  const NameScope names{Scope(graph, update.name())};

  // All have to read one value: on its own device another worker may write
  // between two of them.
  Output read = variable;
  std::string there = move.readers[0]->device();
  if (!SentOnce(variable, move.readers)) {
    const DeviceScope beside(graph, server);
    read = graph.Add({"Copy", {variable}}).output(0);
    for (Node* reader : move.readers) {
      for (int i = 0; i < reader->num_inputs(); ++i) {
        if (reader->input(i) == variable) reader->set_input(i, read);
      }
    }
    there = value.node().device();
  }

  // A difference of numbers in half precision has few digits left.
  const DType wide = ComputeDType(variable.dtype());
  const double rest = 1 - move.factor;
  Output moved;
  {
    const DeviceScope away(graph, there);
    moved = CastTo(value, wide);
    moved = rest == 0 ? moved - CastTo(read, wide)
                      : (moved - move.factor * CastTo(read, wide)) / rest;
  }
  const DeviceScope beside(graph, server);
  if (rest != 0) moved = rest * (moved - CastTo(variable, wide));
  std::vector<Output> inputs = update.inputs();
  inputs[1] = CastTo(moved, variable.dtype());
  update.Become(OpTable::Global().Get("AssignAdd"), {}, std::move(inputs));
}

}  // namespace

void MakeUpdatesAdditive(const Operation& train) {
  const Finder finder(train);
  for (const Move& move : finder.moves()) Rewrite(move);
}

}  // namespace sluice::dist
