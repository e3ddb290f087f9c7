#include <fmt/format.h>

#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "graph/input_count.h"
#include "graph/passes/passes.h"
#include "graph/traversal.h"

namespace sluice::passes {
namespace {

using NodeSet = std::unordered_set<const Node*>;

Status Fault(const Node& node, std::string_view what,
             Code code = Code::kInternal) {
  std::string message = fmt::format("{}: {}", node.Describe(), what);
  if (!node.location().empty()) message += " (" + node.location() + ")";
  return {code, std::move(message)};
}

Status CheckEdges(const Node& node, const NodeSet& own) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Output& input = node.input(i);
    if (!input.valid() || !own.contains(&input.node())) {
      return Fault(node, fmt::format("input {} is not in the graph", i));
    }
    if (input.index() < 0 || input.index() >= input.node().num_outputs()) {
      return Fault(node,
                   fmt::format("input {} is output {} of {}, which has {}", i,
                               input.index(), input.node().Describe(),
                               input.node().num_outputs()));
    }
  }
  for (const Node* control : node.control_inputs()) {
    if (!own.contains(control)) {
      return Fault(node, "a control input is not in the graph");
    }
  }
  return {};
}

Status CheckRecord(const Node& node) {
  const OpDef& op = node.op();
  if (!op.TakesInputs(node.num_inputs())) {
    return Fault(node, fmt::format("{} inputs, wanted {}", node.num_inputs(),
                                   InputCountText(op)));
  }
  int known = 0;
  for (const AttrDef& def : op.attrs) {
    const AttrValue* value = node.attrs().Find(def.name);
    if (value == nullptr || !Fits(def.type, value->type())) {
      return Fault(node, fmt::format("attribute '{}' is missing or not a {}",
                                     def.name, NameOf(def.type)));
    }
    ++known;
  }
  if (std::distance(node.attrs().begin(), node.attrs().end()) != known) {
    return Fault(node, "has attributes that its op does not have");
  }
  if (node.mutates() < 0 || node.mutates() > node.num_inputs()) {
    return Fault(node, fmt::format("updates {} of {} inputs", node.mutates(),
                                   node.num_inputs()));
  }
  for (int i = 0; i < node.mutates(); ++i) {
    if (!node.input(i).node().IsVariable()) {
      return Fault(node,
                   fmt::format("updates input {}, which is {}, wanted a "
                               "Variable",
                               i, node.input(i).node().Describe()),
                   Code::kInvalidArgument);
    }
  }
  return {};
}

Status CheckTypes(const Node& node) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TensorType> inferred,
                          Graph::InferredTypes(node));
  const std::vector<TensorType>& types = node.output_types();
  if (types.size() != inferred.size()) {
    return Fault(node, fmt::format("{} outputs, inference says {}",
                                   types.size(), inferred.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].dtype != inferred[i].dtype ||
        !Compatible(types[i].shape, inferred[i].shape)) {
      return Fault(node,
                   fmt::format("output {} is {}, inference says {}", i,
                               types[i].ToString(), inferred[i].ToString()));
    }
  }
  return {};
}

// Who has some rows of a tensor knows how many they are, and reads no others.
Status CheckCounted(const Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Output counter = CounterOf(node.input(i));
    if (!counter.valid()) continue;
    if (counter.type() != TensorType{DType::kInt64, {}}) {
      return Fault(node, fmt::format("what counts its input {} is {}", i,
                                     counter.type().ToString()));
    }
    const ReadsCountedFn reads_counted = node.op().reads_counted;
    if (reads_counted != nullptr && reads_counted(node, i)) continue;
    return Fault(node,
                 fmt::format("reads all rows of {}, of which there are as "
                             "many as {} says",
                             node.input(i).node().Describe(),
                             counter.node().Describe()));
  }
  return {};
}

// The names of all ops that others name as their wait.
std::set<std::string_view> WaitOps() {
  std::set<std::string_view> names;
  for (const OpDef* op : OpTable::Global().All()) {
    if (op->wait != nullptr) names.insert(op->wait);
  }
  return names;
}

// Whether it is the wait of this start, and of the same edge or group: what
// both have to say is the same.
bool WaitsFor(const Node& wait, const Node& start) {
  if (start.op().wait == nullptr || !wait.Is(start.op().wait)) return false;
  for (const AttrDef& def : wait.op().attrs) {
    const AttrValue* const said = start.attrs().Find(def.name);
    if (said != nullptr && *said != *wait.attrs().Find(def.name)) return false;
  }
  return true;
}

// What an op starts has one node that waits for it (OpDef::wait), nobody else
// uses what is under way, and nobody waits for anything else.
Status CheckWaits(const Graph& graph) {
  const std::set<std::string_view> wait_ops = WaitOps();
  std::unordered_map<const Node*, const Node*> waits;
  for (const auto& node : graph.nodes()) {
    if (wait_ops.contains(node->op().name) &&
        !WaitsFor(*node, node->input(0).node())) {
      return Fault(
          *node, fmt::format("waits for {}", node->input(0).node().Describe()));
    }
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node& start = node->input(i).node();
      if (start.op().wait == nullptr) continue;
      if (i != 0 || !node->Is(start.op().wait)) {
        return Fault(*node, fmt::format("uses {}, which is under way until its "
                                        "{}",
                                        start.Describe(), start.op().wait));
      }
      if (const Node* other = waits[&start]) {
        return Fault(*node, fmt::format("{} waits for {} too",
                                        other->Describe(), start.Describe()));
      }
      waits[&start] = node.get();
    }
  }
  for (const auto& node : graph.nodes()) {
    if (node->op().wait != nullptr && !waits.contains(node.get())) {
      return Fault(*node, fmt::format("no {} waits for it", node->op().wait));
    }
  }
  return {};
}

// Both ends of each rendezvous key.
struct Channel {
  const Node* send = nullptr;
  const Node* recv = nullptr;
};
using Channels = std::map<std::string, Channel>;

Status CollectChannels(const Graph& graph, Channels* channels) {
  for (const auto& node : graph.nodes()) {
    if (!node->IsSend() && !node->IsReceive()) continue;
    if (node->op().wait == nullptr) continue;
    const std::string& key = node->attrs().String("key");
    Channel& channel = (*channels)[key];
    const Node*& end = node->IsSend() ? channel.send : channel.recv;
    if (end != nullptr) {
      return Fault(
          *node, fmt::format("{} has the key '{}' too", end->Describe(), key));
    }
    end = node.get();
  }
  for (const auto& [key, channel] : *channels) {
    if (channel.send == nullptr || channel.recv == nullptr) continue;
    const TensorType& sent = channel.send->input(0).type();
    const TensorType& received = channel.recv->output_type(0);
    if (sent.dtype != received.dtype ||
        !Compatible(sent.shape, received.shape)) {
      return Fault(*channel.recv,
                   fmt::format("receives {}, {} sends {}", received.ToString(),
                               channel.send->Describe(), sent.ToString()));
    }
    const OpDef& wait = OpTable::Global().Get(channel.recv->op().wait);
    const bool counts = channel.send->num_inputs() > 1;
    if (counts != (wait.counter != nullptr)) {
      return Fault(
          *channel.recv,
          fmt::format("receives {} rows, {} sends {}", counts ? "all" : "some",
                      channel.send->Describe(), counts ? "some" : "all"));
    }
  }
  return {};
}

Status VerifyNodes(const Graph& graph) {
  NodeSet own;
  for (const auto& node : graph.nodes()) own.insert(node.get());
  for (const auto& node : graph.nodes()) {
    SLUICE_RETURN_IF_ERROR(CheckEdges(*node, own));
    SLUICE_RETURN_IF_ERROR(CheckRecord(*node));
    if (graph.Find(node->name()) != node.get()) {
      return Fault(*node, "is not found by its name");
    }
  }
  try {
    graph.TopologicalOrder();
  } catch (const Error& error) {
    return error.status();
  }
  for (const auto& node : graph.nodes()) {
    SLUICE_RETURN_IF_ERROR(CheckTypes(*node));
    SLUICE_RETURN_IF_ERROR(CheckCounted(*node));
  }
  return CheckWaits(graph);
}

}  // namespace

Status Verify(const Graph& graph) {
  SLUICE_RETURN_IF_ERROR(VerifyNodes(graph));
  Channels channels;
  return CollectChannels(graph, &channels);
}

Status Verify(const Partitions& partitions) {
  Channels channels;
  for (const auto& [device, graph] : partitions) {
    SLUICE_RETURN_IF_ERROR(VerifyNodes(*graph));
    SLUICE_RETURN_IF_ERROR(CollectChannels(*graph, &channels));
    for (const auto& node : graph->nodes()) {
      if (node->device() != device) {
        return Fault(*node, fmt::format("is on '{}' in the part of '{}'",
                                        node->device(), device));
      }
    }
  }
  for (const auto& [key, channel] : channels) {
    if (channel.send == nullptr || channel.recv == nullptr) {
      return Fault(channel.send ? *channel.send : *channel.recv,
                   fmt::format("nobody {} '{}'",
                               channel.send ? "receives" : "sends", key));
    }
  }
  return {};
}

}  // namespace sluice::passes
