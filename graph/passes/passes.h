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

// Computes a node's outputs from the values of its operands; an error if that
// fails.
using Fold = std::function<Result<std::vector<Tensor>>(
    const Node& node, const std::vector<Tensor>& inputs)>;

// The NoOp whose control inputs are a step's targets.
inline constexpr std::string_view kTargets = "_targets";

// One graph per device, by device name.
using Partitions = std::map<std::string, std::unique_ptr<Graph>>;

// Checks the legality of the IR: edges stay within the graph, there are no
// cycles, operand counts, attributes, dtypes and shapes agree with the op's
// record, a start has one wait and no other user, a send and its receive agree
// if both are here, variables are updated only through Variable nodes, and no
// node reads beyond counted rows (OpDef::counter). Errors name the node.
// (That writes of one variable are ordered holds for steps, not for whole
// graphs, which may hold alternatives: OrderVariables checks it.)
Status Verify(const Graph& graph);
// Verify of each part of one step; and every send has one receive of its type.
Status Verify(const Partitions& partitions);

// Drops every node that neither a sink nor the kTargets node needs.
void Prune(Graph& graph);

// How many workers a group has, and which of them this one is.
struct Seat {
  int64_t size = 1;
  int64_t rank = 0;
};
// Returns the seat in a group, by the group's name, "" for the whole job; of
// size 0 if there is no such group.
using WorkersIn = std::function<Seat(std::string_view group)>;

// Fills in how many workers meet in each collective that leaves it open, and
// which of them this one is where an op asks (OpDef::asks_seat). Null: there is
// one worker. An error names a node whose group does not exist.
Status CountWorkers(Graph& graph, const WorkersIn& workers);

// Runs inference again in topological order now that feed shapes are known,
// and replaces nodes whose inputs are all constants by constants (results up
// to 1 MiB each; never stateful ops; none whose kernel fails). Afterwards
// every shape is concrete, or the error names the node whose shape is not and
// why. Constants end up without control inputs: their users have them instead.
Status Refine(Graph& graph, const Fold& fold);

// For variables whose rows are on several devices (graph/row_pieces.h), makes a
// variable of each piece, and divides the nodes that read, update and
// initialise them likewise. Requires concrete shapes. An error names a node
// that does anything else with such a variable.
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

// Moves nodes that count rows when the step runs, and nodes that read counted
// rows (OpDef::counter), from devices without a kernel for them to a CPU, of
// the same task if it has one: the host must know how many rows it sends.
Status CountOnCpu(Graph& graph, const DeviceDescriptions& devices);

// Moves the collectives of accelerators to the first CPU, if there is one,
// unless all of the step's are on the device `meets_on`, have kernels there and
// are of all workers: collectives both on a queue and on the host would have no
// common order. `meets_on` empty: workers meet on the host alone.
Status MeetOnCpu(Graph& graph, const DeviceDescriptions& devices,
                 const std::string& meets_on = {});

// Places all feeds and fetches on the device `home`, wherever they were placed.
Status BringHome(Graph& graph, const std::string& home);

// Whether `output` is a variable's own buffer. Which nodes read it, and when,
// is fixed by the readers' control edges, so passes must not change readers.
inline bool IsVariable(const Output& output) {
  const Node& root = ViewRoot(output).node();
  return root.IsVariable() || root.mutates() > 0;
}

// Lets the nodes whose records allow it (HalfRule) compute in `half`, kFloat16
// or kBFloat16, and puts a Cast wherever half and float32 meet. Only nodes of
// float32 change; variables, feeds and fetches keep their dtypes. The rules are
// in precision.cc. Requires a placed graph if there are several devices.
Status MixPrecision(Graph& graph, DType half);

// Pads the images that half-precision convolutions read, and their filters,
// from three channels to four with zeros, if the device wants a multiple of
// four (half_channels). Results are the same to rounding. Requires a placed
// graph and concrete shapes.
void PadChannels(Graph& graph, const DeviceDescriptions& devices,
                 const Fold& fold);

// Gives convolutions OHWI filters if their device wants them (filters_ohwi),
// and transposes the filters' gradients back, all of a step at once. Results
// have the same bits. Requires a graph that Fuse has left.
void TurnFilters(Graph& graph, const DeviceDescriptions& devices);

// Lets float16 convolutions also sum their outputs for the batch normalisations
// behind them, if their device can (half_sums). Results are the same to
// rounding. Requires a graph that TurnFilters has left.
void FuseStatistics(Graph& graph, const DeviceDescriptions& devices);

// Orders variable accesses: every write follows all reads of the old value, by
// control edges. A read is a use by an op that computes; one that depends on a
// write sees its value, any other the value at the start of the step. A view
// reads for its users, at its own place. Where a read cannot come before the
// write that would destroy its value, it is given a copy. Two unordered writes
// are an error naming both. Also puts the step's collectives in one order, that
// in which they were made, which changes no read. Wants a placed graph where
// there are several devices.
Status OrderVariables(Graph& graph);

// Makes every update of a variable wait for the last of the step's collectives,
// so that a step whose last collective another worker has not come to changes
// nothing here. An update that a collective waits for is an error.
Status CommitTogether(Graph& graph);

// A record of nodes that Fuse merged into one.
struct Fusion {
  std::string node;                 // the name of the merged node
  std::string op;                   // its op
  std::vector<std::string> merged;  // the nodes it stands for, itself included
  int64_t bytes_saved = 0;          // moved to and from memory, in each run
};

// Merges nodes into ops that compute the same with fewer passes over memory:
// results agree to rounding, and bit for bit where no sum is reordered. The
// rules are in fuse_rules.h. Runs on the whole placed graph of a step after
// OrderVariables, so that every path there is counts when cycles are looked
// for: those through other devices and those that keep a read before a write.
// Nothing is merged across devices. Requires concrete shapes. Devices set the
// least size of a node to fuse (DeviceDescription::least_fused_elements).
std::vector<Fusion> Fuse(Graph& graph, const DeviceDescriptions& devices = {});

// An order of all nodes that respects their dependencies and keeps few bytes
// alive: among the nodes that can run, first those that free more than they
// allocate (optimizer updates, as soon as their gradient is there), then the
// order of creation. Every partition follows the one order chosen here.
std::vector<Node*> Schedule(const Graph& graph);
// Splits each collective into a start and a wait, between which other nodes
// run. The starts carry the number of collectives of their group in the step
// (`in_step`), so that workers whose steps differ in it find out at the first.
Status StartCollectives(Graph& graph);

// One graph per device that has nodes, with a send and a receive on the
// crossing edges, each a start and a wait: each crossing tensor is sent once to
// each device. Crossing control edges become that of an empty tensor; constants
// are copied instead. Both starts stand right behind the producer, both waits
// right before the first consumer, so that creation order in every part
// restricts one topological order of the whole and parts run in that order
// cannot deadlock. If other steps may write a variable meanwhile, a copy of it
// is sent. Of a tensor with a counter only the counted rows are sent, and the
// first tensor of that counter brings the count along. Edges get their numbers,
// and devices their incarnations, later (PartitionStep). Requires a placed
// graph; a device that is not described shares no variables.
Partitions Partition(const Graph& graph,
                     const DeviceDescriptions& devices = {});

}  // namespace passes
}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_PASSES_H_
