// Makes what workers that each train at their own speed assign to variables
// into additions.
#ifndef SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_
#define SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_

#include "graph/graph.h"

namespace sluice::dist {

// A worker reads a variable some time before it writes it: an Assign of what it
// made of what it read takes back all that others have written in between. So
// those that `train` needs, Graph::updates and what an optimizer writes into
// its slots, become additions to what is there by then, where they assign to a
// floating variable v, element by element,
//
//   value = factor * v + term    factor: a number known here, not 0
//                                term: not of v
//
// as the moving statistics of batch normalisation, LAMB's means of gradients
// and other averages do (factor < 1), and sums (1). `read` is v as the worker
// has read it:
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
// that none is lost. Without others v becomes value, to rounding. Who reads
// what the Assign has made of v has v as it is after the addition, with what
// others have written.
//
// All else stays as it is: what is of whole numbers, not of v, or of it in
// another way (a maximum, a factor that changes from step to step, as that of
// Optimizer::WithAverages, which a server computes of what it has then); what
// updates a variable that something else in the graph updates, too; and, of
// variables that are cut by rows, what servers compute of them. Wants a graph
// that PlaceOnServers has placed.
void MakeUpdatesAdditive(const Operation& train);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_SERVERS_ADDITIVE_UPDATES_H_
