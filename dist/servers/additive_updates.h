// What several workers with speeds of their own write beside the optimizer.
#ifndef SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_
#define SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_

#include "graph/graph.h"

namespace sluice::dist {

// A worker reads a variable some time before it writes it: an Assign of what it
// made of what it read takes back all that others have written in between. So
// those of Graph::updates become additions to what is there by then, where they
// assign to a floating variable v, element by element,
//
//   value = factor * v + term    factor: a number known here, not 0
//                                term: not of v
//
// as the moving statistics of batch normalisation and other averages do
// (factor < 1), and sums (1). `read` is v as the worker has read it:
//
//   factor 1:  v += value - read
//   others:    v += (1 - factor) * (goal - v)
//              goal = (value - factor * read) / (1 - factor)
//
// The worker computes the goal, for averages the batch's mean; the server does
// the rest, with v as it is when the goal has come, as TensorFlow 1.x does. By
// the first form each of n workers would draw an average back from where it was
// n updates ago: it would swing, of more than 16 workers and a factor of 0.9
// ever further. An addition is one instruction (engine/variable_store.h), so
// that none is lost. Without others v becomes value, to rounding.
//
// All else stays as it is: what is of whole numbers, not of v, or of it in
// another way (a maximum, a factor that changes from step to step); what
// updates a variable that something else in the graph updates, too; and, of
// variables that are cut by rows, what servers compute of them. Wants a graph
// that PlaceOnServers has placed.
void MakeUpdatesAdditive(Graph& graph);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_
