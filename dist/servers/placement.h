// Which parameter server each variable of a training is on, and what else of
// the graph goes there.
#ifndef SLUICE_DIST_SERVERS_PLACEMENT_H_
#define SLUICE_DIST_SERVERS_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// The sizes in bytes, slots included, from which on variables are cut by rows
// over the servers.
struct CutFrom {
  int64_t tables = INT64_MAX;
  // nullopt: an eighth of a server's even share, but at least 1 MiB, so that no
  // server has more than that above another.
  std::optional<int64_t> dense = std::nullopt;
};

// Gives every node of a whole training's graph, first values and updates
// included, a device: one of the `servers`, or the `worker`.
//
// - Variables are shared out by bytes, the largest first, each to the server
//   that has least so far (the first of several), so that none has more than
//   another by more than the largest. What belongs together,
//   "<variable>/<slot>" and whatever one node updates, counts as one and stays
//   together.
// - Of a large table each server has some rows (graph/row_pieces.h), which
//   count as its bytes: where variables are on GPUs, the CPU beside, since rows
//   are counted there. A table is what is read by Gather along its first
//   dimension alone, and updated by rows if at all.
// - So it is with other large variables, which workers read as wholes, of eight
//   rows or more, where a server has to look at rows of it alone, and at no
//   more than one element of it and its slots at a time: not where it would
//   have to join them, as for the norm of what is beside them, nor, on GPUs,
//   where rows of it are taken or updated by their numbers.
// - What updates a variable is beside it (passes::Place), and so is what only
//   serves that and makes no more travel: what is computed of variables alone,
//   such as first values and learning rates, and elementwise what is done to a
//   gradient with the variable, such as its decay.
// - What takes rows of a variable (Gather) is beside it: their numbers go, the
//   rows come, and where the gradient is one of rows
//   (Optimizer::WithSparseRows) theirs go back. The variable itself does not
//   travel.
// - What is computed of variables and of `decided`, placeholders that no batch
//   has a part in, is where its largest operand is: what workers have sent is
//   not to travel back.
// - All else is the worker's: values of variables come, gradients go.
//
// Nodes of which some do have a device keep it; kInvalidArgument where that is
// none of these. The same graph always gets the same devices.
Status PlaceOnServers(Graph& graph, const std::string& worker,
                      const std::vector<std::string>& servers,
                      const CutFrom& cut_from = {},
                      const std::vector<Output>& decided = {});

// Makes the operation's increment of `counter`, a variable, the last of its
// updates: it then counts those that were applied. Returns the counter's new
// value. Wants a graph that PlaceOnServers has placed.
Output CountLast(const Operation& train, const Output& counter);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_PLACEMENT_H_
