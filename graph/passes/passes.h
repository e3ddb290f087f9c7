// Passes: functions that rewrite a graph in place. What they must know of
// devices is passed in, as a description, and so is what runs a node to fold
// it; they do no I/O. Verify states what every pass may rely on and must
// preserve. In which order a step goes through them says
// graph/passes/pipeline.h.
//
// A pass keeps names, origins, creation order (new nodes stand next to what
// they are for) and every control dependency; it may leave dead nodes for
// Prune. All are near-linear in nodes and edges.
#ifndef SLUICE_GRAPH_PASSES_PASSES_H_
#define SLUICE_GRAPH_PASSES_PASSES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/passes/device_description.h"
#include "graph/traversal.h"

namespace SLUICE_INTERNAL sluice {
namespace passes {

// The values of a node whose operands have these; an error if it fails.
using Fold = std::function<Result<std::vector<Tensor>>(
    const Node& node, const std::vector<Tensor>& inputs)>;

// The NoOp whose control inputs are a step's targets.
inline constexpr std::string_view kTargets = "_targets";

// One graph per device, by device name.
using Partitions = std::map<std::string, std::unique_ptr<Graph>>;

// Legality of the IR: edges stay within the graph, no cycles, operand counts,
// attributes, dtypes and shapes agree with the op's record, a start has one
// wait and no other user, a send and its receive agree where both are here,
// variables are updated only through Variable nodes, of what is there in part
// (OpDef::counter) nobody reads more. Names the offending node.
// (That writes of one variable are ordered holds for steps, not for whole
// graphs, which may hold alternatives: OrderVariables checks it.)
Status Verify(const Graph& graph);
// The same for the parts of one step; every send has one receive of its type.
Status Verify(const Partitions& partitions);

// Drops every node that neither a sink nor the kTargets node needs.
void Prune(Graph& graph);

// How many workers a group has, and which of them this one is.
struct Seat {
  int64_t size = 1;
  int64_t rank = 0;
};
// By the group's name, which is empty for all of the job; of size 0 where there
// is no such group.
using WorkersIn = std::function<Seat(std::string_view group)>;

// Fills in how many workers meet in each collective that leaves it open, and
// which this one is where that is asked for; null: it is alone. An error names
// a node of a group that there is not.
Status CountWorkers(Graph& graph, const WorkersIn& workers);

// Runs inference again in topological order now that feed shapes are known,
// and replaces nodes whose inputs are all constants by constants (results up
// to `max_bytes` each; never stateful ops; none whose kernel fails). Afterwards
// every shape is concrete, or the error names the node whose shape is not and
// why. Constants end up without control inputs: their users have them instead.
Status Refine(Graph& graph, const Fold& fold, size_t max_bytes = 1 << 20);

// Makes a variable of each piece of those whose rows are on several devices
// (graph/row_pieces.h), and of what reads and updates them, and of first
// values, as many. Wants concrete shapes. An error names a node that does
// something else with such a variable.
Status SpreadVariables(Graph& graph);

// Merges nodes that compute the same: same op, attributes, inputs, device and
// control inputs. Never stateful ones; reads of variables only by being the
// same node.
void MergeCommon(Graph& graph);

// Algebraic identities that hold bit for bit, NaN, infinities and signed zeros
// included: x-0, x*1, x/1, double negation, transposes that cancel, reshapes of
// reshapes, casts to the same dtype, sums to the same shape, ... The table is
// in simplify.cc.
void Simplify(Graph& graph);

// Turns batch normalisation by constant statistics of what a linear op with
// constant weights yields (Conv2D, DepthwiseConv2D, MatMul, a BiasAdd between)
// into other weights and a BiasAdd. Results agree to rounding.
void FoldBatchNorm(Graph& graph);

// Gives every node a device: that of the variable it updates, else its own
// request, else that of its first input that is no constant, else devices[0].
// A constant without a request goes where it is first used. An unknown request
// is an error that lists the devices.
Status Place(Graph& graph, const DeviceDescriptions& devices);

// Moves the nodes that their device has no kernel for to the first CPU of its
// task, or of all, but for those that update a variable, which stay beside it.
// An error where there is no CPU, or a description names no kernels at all.
Status MoveUnsupported(Graph& graph, const DeviceDescriptions& devices);

// Moves what counts rows when the step runs, and what reads so many
// (OpDef::counter), to a CPU, of its task where that has one, from devices that
// have no kernel for it: the host has to know how many it sends.
Status CountOnCpu(Graph& graph, const DeviceDescriptions& devices);

// Moves the collectives of accelerators to the first CPU, if there is one,
// unless all of the step are on the device `meets_on`, have kernels there and
// are of all workers: on its queue and on the host at a time they would have no
// order. Empty: workers meet on the host alone.
Status MeetOnCpu(Graph& graph, const DeviceDescriptions& devices,
                 const std::string& meets_on = {});

// Puts what is fed and fetched on one device, wherever else it was placed.
Status BringHome(Graph& graph, const std::string& home);

// Whether these are a variable's own bytes. Who reads them, and when, is
// settled by the control edges of the reader: it must not change.
inline bool IsVariable(const Output& output) {
  const Node& root = ViewRoot(output).node();
  return root.IsVariable() || root.mutates() > 0;
}

// Lets the nodes whose records say that it does them no harm (HalfRule) compute
// in `half`, kFloat16 or kBFloat16, and puts a Cast wherever that and float32
// meet. Only nodes of float32 change; variables, feeds and fetches keep their
// dtypes. The rules are in precision.cc. Wants a placed graph where there
// are several devices.
Status MixPrecision(Graph& graph, DType half);

// Gives what convolutions read of images in half precision, and of their
// filters, a fourth channel of zeros where there are three and the device likes
// a multiple of four (half_channels). Results are the same to rounding. Wants a
// placed graph and concrete shapes.
void PadChannels(Graph& graph, const DeviceDescriptions& devices,
                 const Fold& fold);

// Gives convolutions filters OHWI where their device likes it (filters_ohwi),
// and turns the gradients of these back, all of a step at once. The same bits.
// Wants what Fuse leaves.
void TurnFilters(Graph& graph, const DeviceDescriptions& devices);

// Lets convolutions in float16 sum what they make for the batch normalisations
// behind them, where their device can (half_sums). Results are the same to
// rounding. Wants what TurnFilters leaves.
void FuseStatistics(Graph& graph, const DeviceDescriptions& devices);

// Orders variable accesses: every write follows all reads of the old value, by
// control edges. A read is a use by an op that computes; one that depends on a
// write sees its value, any other the value at the start of the step. A view
// reads for its users, at its own place. Where a read cannot come before the
// write that would destroy its value, it is given a copy. Two unordered writes
// are an error naming both. Wants a placed graph where there are several
// devices.
Status OrderVariables(Graph& graph);

// Where workers meet, has every update of a variable wait for the last of the
// step's collectives, so that a step that another worker did not live to see
// has changed nothing here. An update that a collective waits for is an error.
Status CommitTogether(Graph& graph);

// Nodes that Fuse made one.
struct Fusion {
  std::string node;                 // whose name it has
  std::string op;                   // what it is now
  std::vector<std::string> merged;  // the nodes it stands for, itself included
  int64_t bytes_saved = 0;          // moved to and from memory, in each run
};

// Merges nodes into ops that compute the same with fewer passes over memory:
// results agree to rounding, and bit for bit where no sum is reordered. The
// rules are in fuse_rules.h. Runs on the whole placed graph of a step after
// OrderVariables, so that every path there is counts when cycles are looked
// for: those through other devices and those that keep a read before a write.
// Nothing is merged across devices. Wants concrete shapes.
// How small a node may be that is fused is the device's to say.
std::vector<Fusion> Fuse(Graph& graph, const DeviceDescriptions& devices = {});

// An order of all nodes that respects their dependencies and keeps few bytes
// alive: among the nodes that can run, first those that free more than they
// allocate (optimizer updates, as soon as their gradient is there), then the
// order of creation. Every partition follows the one order chosen here.
std::vector<Node*> Schedule(const Graph& graph);
// Collectives become a start and a wait each, between which others run. The
// starts have how many of a group there are, so that workers whose steps have
// others find that out at the first (`in_step`).
Status StartCollectives(Graph& graph);

// One graph per device that has nodes, with a send and a receive on the
// crossing edges, each a start and a wait: each crossing tensor is sent once to
// each device. Crossing control edges become that of an empty tensor; constants
// are copied instead. Both starts stand right behind the producer, both waits
// right before the first consumer, so that creation order in every part
// restricts one topological order of the whole and parts run in that order
// cannot deadlock. What is sent of variables that others may write meanwhile is
// a copy. Of what has a counter the rows that are there are sent, and the first
// tensor of that counter brings the count along. The edges have no numbers yet,
// the devices no incarnations
// (PartitionStep). Requires a placed graph; a device that is not described
// shares no variables.
Partitions Partition(const Graph& graph,
                     const DeviceDescriptions& devices = {});

}  // namespace passes
}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_PASSES_H_
