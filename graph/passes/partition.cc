#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

// "/cpu:1" as part of a node's name.
std::string NamePart(std::string device) {
  device.erase(0, device.find_first_not_of('/'));
  std::replace(device.begin(), device.end(), ':', '_');
  return device;
}

// Index standing for "the node has run" among the indices of its outputs.
constexpr int kDone = -1;

// Something that leaves its device: an output, or a node's having run.
struct Crossing {
  int index;  // of the output, or kDone
  std::string to;
  friend bool operator<(const Crossing& a, const Crossing& b) {
    return a.index != b.index ? a.index < b.index : a.to < b.to;
  }
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const DeviceDescriptions& devices)
      : graph_(graph), devices_(devices), order_(graph.TopologicalOrder()) {}

  Partitions Run() {
    FindCrossings();
    for (Node* node : order_) {
      if (Replicated(*node)) {
        // Made where it is wanted; one that nobody wants stays where it is.
        if (!used_.contains(node)) LocalConst(*node, node->device());
      } else if (node->name() == kTargets) {
        SplitTargets(*node);
      } else {
        Copy(*node);
      }
    }
    return std::move(parts_);
  }

 private:
  static bool Replicated(const Node& node) {
    return node.IsConstant() && node.control_inputs().empty();
  }

  // A control edge needs no message of its own where a tensor comes anyway.
  int DoneIndex(const Node& node, const std::string& to) const {
    auto it = crossings_.find(&node);
    if (it == crossings_.end()) return kDone;
    for (const Crossing& crossing : it->second) {
      if (crossing.to == to && crossing.index != kDone) return crossing.index;
    }
    return kDone;
  }

  void FindCrossings() {
    for (const Node* node : order_) {
      for (const Output& input : node->inputs()) {
        const Node& producer = input.node();
        used_.insert(&producer);
        if (Replicated(producer) || producer.device() == node->device()) {
          continue;
        }
        crossings_[&producer].insert({input.index(), node->device()});
      }
    }
    for (const Node* node : order_) {
      if (node->name() == kTargets) continue;
      for (const Node* control : node->control_inputs()) {
        const std::string& to = node->device();
        if (Replicated(*control) || control->device() == to) continue;
        if (DoneIndex(*control, to) == kDone) {
          crossings_[control].insert({kDone, to});
        }
      }
    }
    for (const Node* node : order_) FindCounters(*node);
  }

  // What counts the rows that leave a node has to be where they go: the first
  // that it counts bring it along.
  void FindCounters(const Node& node) {
    const auto found = crossings_.find(&node);
    if (found == crossings_.end()) return;
    for (const Crossing& crossing : found->second) {
      if (crossing.index == kDone) continue;
      const Output counter = CounterOf(node.output(crossing.index));
      if (!counter.valid() || counter.node().device() == crossing.to) continue;
      const Shape& shape = node.output_type(crossing.index).shape;
      const bool shows = shape.elements(1, shape.rank()) > 0;
      if (shows && counter.node().device() == node.device()) {
        carriers_.emplace(std::pair(counter, crossing.to),
                          std::pair(&node, crossing));
      }
      // By itself, if nothing brings it along. A counter is a scalar, and of
      // another node's crossings, or of an output behind this one.
      crossings_[&counter.node()].insert({counter.index(), crossing.to});
    }
  }

  // What brings it along; null: nothing does.
  const std::pair<const Node*, Crossing>* CarrierOf(
      const Node& node, const Crossing& crossing) const {
    if (crossing.index == kDone) return nullptr;
    const auto found =
        carriers_.find({node.output(crossing.index), crossing.to});
    return found == carriers_.end() ? nullptr : &found->second;
  }

  Graph& Part(const std::string& device) {
    std::unique_ptr<Graph>& part = parts_[device];
    if (part == nullptr) part = std::make_unique<Graph>();
    return *part;
  }

  // A name that neither the part nor the whole graph has.
  std::string FreshName(const std::string& name, const Graph& part) const {
    std::string fresh = name;
    for (int i = 1; graph_.Find(fresh) || part.Find(fresh); ++i) {
      fresh = fmt::format("{}_{}", name, i);
    }
    return fresh;
  }

  Node& AddNew(const std::string& base, std::string_view op, Attributes attrs,
               std::vector<Output> inputs, std::vector<TensorType> types,
               const Node& cause, const std::string& device) {
    Graph& part = Part(device);
    const std::string name = FreshName(base, part);
    Node& node =
        part.AddRaw(name, name, OpTable::Global().Get(op), std::move(attrs),
                    std::move(inputs), std::move(types));
    node.set_device(device);
    node.set_location(cause.location());
    return node;
  }

  Node& LocalConst(const Node& node, const std::string& device) {
    Node*& local = constants_[{&node, device}];
    if (local == nullptr) {
      local = &Part(device).AddCopy(node, {});
      local->set_device(device);
    }
    return *local;
  }

  void Copy(const Node& node) {
    const std::string& device = node.device();
    std::vector<Output> inputs;
    for (const Output& input : node.inputs()) {
      inputs.push_back(Local(input, device));
    }
    std::vector<Node*> controls;
    for (const Node* control : node.control_inputs()) {
      if (Node* local = LocalControl(*control, device)) {
        controls.push_back(local);
      }
    }
    Node& copy = Part(device).AddCopy(node, std::move(inputs));
    for (Node* control : controls) copy.AddControlInput(control);
    copies_[&node] = &copy;
    if (auto it = crossings_.find(&node); it != crossings_.end()) {
      for (const Crossing& crossing : it->second) {
        if (CarrierOf(node, crossing) == nullptr) Start(copy, node, crossing);
      }
    }
  }

  Output Local(const Output& output, const std::string& device) {
    const Node& node = output.node();
    if (Replicated(node)) return LocalConst(node, device).output(0);
    if (node.device() == device) {
      return copies_.at(&node)->output(output.index());
    }
    const Crossing crossing = {output.index(), device};
    const bool carried = CarrierOf(node, crossing) != nullptr;
    return Receive(node, crossing).output(carried ? 1 : 0);
  }

  // Null: nothing to wait for.
  Node* LocalControl(const Node& node, const std::string& device) {
    if (Replicated(node)) return nullptr;
    if (node.device() == device) return copies_.at(&node);
    return &Receive(node, {DoneIndex(node, device), device});
  }

  // A tensor sent in place of a node's having run.
  Output EmptyTensor(const std::string& device, const Node& cause) {
    Node*& empty = empty_[device];
    if (empty == nullptr) {
      empty = &AddNew("_empty", "Const", {{"value", Tensor()}}, {},
                      {{DType::kFloat32, Shape{0}}}, cause, device);
    }
    return empty->output(0);
  }

  static std::string Key(const Node& node, const Crossing& crossing) {
    if (crossing.index == kDone) {
      return fmt::format("{};{};^{}", node.device(), crossing.to, node.name());
    }
    return fmt::format("{};{};{}:{}", node.device(), crossing.to, node.name(),
                       crossing.index);
  }

  // "fc1/matmul/send_cpu_1", "split/1/recv_cpu_0", "train/done/send_cpu_1"
  static std::string EndName(const Node& node, const Crossing& crossing,
                             const char* end, const std::string& device) {
    const std::string index = crossing.index == kDone ? "/done"
                              : crossing.index == 0
                                  ? ""
                                  : fmt::format("/{}", crossing.index);
    return fmt::format("{}{}/{}_{}", node.name(), index, end, NamePart(device));
  }

  // Numbers and incarnations come later (PartitionStep).
  static Attributes EdgeAttrs(const std::string& key) {
    return {{"key", key}, {"edge", -1}, {"sender", 0}, {"receiver", 0}};
  }

  // Both ends of an edge, from its start on.
  struct Ends {
    Node* send;
    Node* recv;
    Node* received = nullptr;  // the wait, when somebody has asked for it
  };

  // What stays as it is until it has been sent: a variable that others may
  // write meanwhile does not.
  Output Steady(const Output& value, const Node& cause) {
    const std::string& here = cause.device();
    const DeviceDescription* device = FindDevice(devices_, here);
    if (device == nullptr || !device->shares_variables || !IsVariable(value)) {
      return value;
    }
    Node*& steady = steady_[value];
    if (steady == nullptr) {
      steady = &AddNew(value.node().name() + "/steady", "Copy", {}, {value},
                       {value.type()}, cause, here);
    }
    return steady->output(0);
  }

  // As soon as the tensor is there.
  void Start(Node& copy, const Node& node, const Crossing& crossing) {
    const bool done = crossing.index == kDone;
    const std::string& here = node.device();
    const Output value = done ? EmptyTensor(here, node)
                              : Steady(copy.output(crossing.index), node);
    const Output counter =
        done ? Output() : CounterOf(copy.output(crossing.index));
    const std::string key = Key(node, crossing);
    std::vector<Output> sent = {value};
    if (counter.valid()) sent.push_back(counter);
    Node& send =
        AddNew(EndName(node, crossing, "send", crossing.to), "SendStart",
               EdgeAttrs(key), std::move(sent), {value.type()}, node, here);
    if (done) send.AddControlInput(&copy);
    Attributes received = EdgeAttrs(key);
    received.Set("dtype", value.dtype());
    received.Set("shape", value.shape());
    Node& recv =
        AddNew(EndName(node, crossing, "recv", here),
               counter.valid() ? "RecvRowsStart" : "RecvStart",
               std::move(received), {}, {value.type()}, node, crossing.to);
    ends_[{&node, crossing}] = {&send, &recv};
  }

  // Of rows that come, what says where they go how many; nothing where they
  // say it themselves.
  std::vector<Output> CountOfRows(const Node& node, const Crossing& crossing) {
    const Output counter = CounterOf(node.output(crossing.index));
    const auto* carrier =
        CarrierOf(counter.node(), {counter.index(), crossing.to});
    const bool own = carrier != nullptr && carrier->first == &node &&
                     carrier->second.index == crossing.index;
    if (own) return {};
    return {Local(counter, crossing.to)};
  }

  // When the receiver first needs it.
  Node& Receive(const Node& node, const Crossing& crossing) {
    if (const auto* carrier = CarrierOf(node, crossing)) {
      return Receive(*carrier->first, carrier->second);
    }
    Ends& ends = ends_.at({&node, crossing});
    if (ends.received != nullptr) return *ends.received;
    const auto wait = [&](const char* name, Node& start,
                          const std::string& other, std::vector<Output> count,
                          std::vector<TensorType> types) -> Node& {
      count.insert(count.begin(), start.output(0));
      return AddNew(EndName(node, crossing, name, other), start.op().wait,
                    EdgeAttrs(start.attrs().String("key")), std::move(count),
                    std::move(types), node, start.device());
    };
    std::vector<TensorType> types = {ends.recv->output_type(0)};
    std::vector<Output> count;
    if (ends.send->num_inputs() > 1) {
      types.push_back(ends.send->input(1).type());
      count = CountOfRows(node, crossing);
    }
    ends.received = &wait("received", *ends.recv, node.device(),
                          std::move(count), std::move(types));
    wait("sent", *ends.send, crossing.to, {}, {});
    return *ends.received;
  }

  // Every part keeps its own targets alive.
  void SplitTargets(const Node& targets) {
    for (const Node* target : targets.control_inputs()) {
      if (Replicated(*target)) continue;
      Graph& part = Part(target->device());
      Node* local = part.Find(kTargets);
      if (local == nullptr) {
        local = &part.AddCopy(targets, {});
        local->set_device(target->device());
      }
      local->AddControlInput(copies_.at(target));
    }
  }

  const Graph& graph_;
  const DeviceDescriptions& devices_;
  const std::vector<Node*> order_;
  Partitions parts_;
  std::set<const Node*> used_;  // as a data input
  std::unordered_map<const Node*, std::set<Crossing>> crossings_;
  std::unordered_map<const Node*, Node*> copies_;
  std::map<std::pair<const Node*, std::string>, Node*> constants_;
  std::map<std::pair<const Node*, Crossing>, Ends> ends_;
  std::map<std::string, Node*> empty_;  // by device
  std::map<Output, Node*> steady_;      // copies, by what they are of
  // Of counters, and the device that they go to: what brings them along.
  std::map<std::pair<Output, std::string>, std::pair<const Node*, Crossing>>
      carriers_;
};

}  // namespace

Partitions Partition(const Graph& graph, const DeviceDescriptions& devices) {
  return Partitioner(graph, devices).Run();
}

}  // namespace sluice::passes
