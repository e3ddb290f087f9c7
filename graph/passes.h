// Passes: functions that rewrite a graph in place. What they must know of
// devices is passed in; they do no I/O. Verify states what every pass may rely
// on and must preserve.
#ifndef SLUICE_GRAPH_PASSES_H_
#define SLUICE_GRAPH_PASSES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/status.h"
#include "graph/graph.h"

namespace sluice::passes {

// Legality of the IR: edges stay within the graph, no cycles, dtypes and shapes
// agree with the op's record, every Recv has its Send's type, variables are
// updated only through Variable nodes, writes of one variable are ordered.
// Names the offending node.
Status Verify(const Graph& graph);

// Drops every node that no sink needs.
void Prune(Graph& graph);

// Runs inference again in topological order now that feed shapes are known,
// and replaces nodes whose inputs are all constants by constants (results up
// to `max_bytes` each; never stateful ops). Afterwards every shape is concrete,
// or the error names the node whose shape is not and why.
Status Refine(Graph& graph, size_t max_bytes = 1 << 20);

// Merges nodes that compute the same: same op, attributes, inputs, device and
// control inputs. Never stateful ones; reads of variables only by being the
// same node.
void MergeCommon(Graph& graph);

// Algebraic identities that hold bit for bit: x+0, x*1, x-0, x/1, double
// negation, transposes that cancel, reshapes of reshapes, casts to the same
// dtype, sums to the same shape, broadcasts to the same shape, ...
void Simplify(Graph& graph);

// Orders variable accesses: every write follows all reads of the old value, by
// control edges. Two unordered writes are an error naming both.
Status OrderVariables(Graph& graph);

// Gives every node a device: its own request, else that of the variable it
// updates or of its inputs, else devices[0]. An unknown request is an error
// that lists the devices.
Status Place(Graph& graph, const std::vector<std::string>& devices);

// One graph per device that has nodes, with Send/Recv on the crossing edges:
// each crossing tensor is sent once to each device. Crossing control edges
// become a Send/Recv of an empty tensor.
std::map<std::string, std::unique_ptr<Graph>> Partition(const Graph& graph);

}  // namespace sluice::passes

#endif  // SLUICE_GRAPH_PASSES_H_
