// How a training's variables are shared out among parameter servers, by bytes.
// Internal to dist/servers.
#ifndef SLUICE_DIST_SERVERS_SHARES_H_
#define SLUICE_DIST_SERVERS_SHARES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dist/servers/placement.h"
#include "graph/graph.h"

namespace sluice::dist {

// Groups of variables that are on one server together, by the number of the
// first of the group.
class Groups {
 public:
  explicit Groups(size_t count);
  size_t Of(size_t i) const {
    while (first_[i] != i) i = first_[i];
    return i;
  }
  void Join(size_t a, size_t b);

 private:
  std::vector<size_t> first_;
};

// Shares out a graph's variables. Must not outlive its arguments.
class Shares {
 public:
  // `order`: the graph's nodes, each after what it needs.
  Shares(const Graph& graph, const std::vector<Node*>& order,
         const std::vector<std::string>& servers, const CutFrom& cut_from);

  // Gives each variable that has no device one, or several (SpreadRows).
  void ShareOut();

  // To be called once all else is placed by that: whether there are more dense
  // variables that cannot be cut, since a server would have to join them, for a
  // norm of slots, for example, or an update does not go element by element, or
  // rows of pieces on GPUs would be counted. (A worker has what it reads as a
  // whole in any case.) The next ShareOut, of variables without devices again,
  // leaves these whole.
  bool FindWholes();

 private:
  // Variables that are on one server together, or cut alike.
  struct Load {
    int64_t bytes = 0;
    std::string device;  // that one of it asks for
    int64_t rows = 0;    // of all of it, a table; 0: it is none
    Shape shape;         // of all of it; a scalar's where they differ
    std::vector<std::string> over;  // the servers that have rows of it
  };

  Groups Grouped() const;
  int64_t RowsOfTable(const Node& variable) const;
  std::map<size_t, Load> FindLoads() const;
  int64_t DenseFrom(const std::map<size_t, Load>& loads) const;
  // Whether `user` takes or updates rows of its operand i, the variable, whose
  // pieces are on GPUs.
  bool CountsRows(const Node& user, int i, const Node& variable) const;

  const std::vector<Node*>& order_;
  const std::vector<std::string>& servers_;
  const std::vector<std::string> hosts_;  // of these
  const CutFrom& cut_from_;
  const std::vector<Output> variables_;
  std::unordered_map<const Node*, size_t> numbers_;  // in variables_
  std::unordered_map<const Node*, std::vector<const Node*>> users_;
  Groups groups_;
  std::set<size_t> whole_;  // groups that are not to be cut, by their first
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_SERVERS_SHARES_H_
