#include "graph/compile/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <unordered_map>

#include "graph/compile/dependencies.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/memory_plan.h"
#include "graph/compile/part_buffers.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

// The bytes behind one or more values.
struct Storage {
  Location::Kind kind = Location::Kind::kNone;
  uint32_t index = 0;  // of a constant, variable or feed
  size_t bytes = 0;
  int unused = 0;            // operands that have yet to read it
  std::vector<int> touched;  // instructions that read or write it, in order
  int output = Plan::Buffer::kWorkspace;  // of the first to write it
  // Of a part of another: that, which has the counts and instructions of both,
  // and where in it.
  int whole = -1;
  size_t at = 0;  // bytes

  bool placed() const { return kind == Location::Kind::kArena && whole < 0; }
};

std::atomic<ExecutorMode> auto_executor{ExecutorMode::kAuto};

// Instructions that something must wait for.
using Positions = std::set<int>;

class Lowering {
 public:
  Lowering(const StepPart& part, Device& device)
      : part_(part),
        graph_(*part.graph),
        device_(device),
        settings_(part.settings) {
    plan_.device = device.name().ToString();
    plan_.seed = settings_.seed;
    const ExecutorMode mode = settings_.executor == ExecutorMode::kAuto
                                  ? auto_executor.load()
                                  : settings_.executor;
    plan_.checked = mode == ExecutorMode::kChecked &&
                    device.accelerator() == nullptr &&
                    device.type() != DeviceType::kNull;
    mode_ = mode == ExecutorMode::kChecked ? ExecutorMode::kAuto : mode;
  }

  Result<Plan> Run() {
    if (part_.incarnation != 0 && part_.incarnation != device_.incarnation()) {
      return FailedPrecondition(fmt::format(
          "the step was cut for incarnation {:x} of '{}', which is gone",
          part_.incarnation, plan_.device));
    }
    const std::vector<Node*> order = graph_.TopologicalOrder();
    if (!plan_.checked && device_.accelerator() == nullptr) {
      parts_ = PartBuffers(order);
    }
    CountUses(order);
    for (Node* node : order) SLUICE_RETURN_IF_ERROR(Visit(*node));
    PlaceBuffers();
    plan_.dataflow = !plan_.checked && ChooseDataflow();
    if (plan_.dataflow) AddReuseWaits(ArenaUses(), &waits_);
    WriteDependencies(std::move(waits_), &plan_);
    return std::move(plan_);
  }

 private:
  // How many operands read each buffer, seen through views.
  void CountUses(const std::vector<Node*>& order) {
    for (const Node* node : order) {
      if (!Runs(*node)) continue;
      for (const Output& input : node->inputs()) ++uses_[parts_.WholeOf(input)];
    }
  }

  bool Runs(const Node& node) const {
    return node.IsInstruction() && !parts_.NeedsNone(node);
  }

  Status Visit(Node& node) {
    if (Runs(node)) return Emit(node);
    Positions& after = after_[&node];
    for (const Output& input : node.inputs()) Depend(input.node(), &after);
    for (const Node* control : node.control_inputs()) Depend(*control, &after);
    if (node.op().view) {
      storage_of_[node.output(0)] = storage_of_.at(node.input(0));
    } else if (node.IsInstruction()) {
      // What is joined is there since the first part was.
      if (parts_.Find(node.output(0)) != nullptr) PartStorage(node.output(0));
    } else if (node.IsConstant()) {
      storage_of_[node.output(0)] =
          NewStorage(node.output(0), Location::Kind::kConstant,
                     static_cast<uint32_t>(plan_.constants.size()));
      SLUICE_ASSIGN_OR_RETURN(
          Tensor value,
          device_.memory().Upload(node.attrs().TensorOf("value")));
      plan_.constants.push_back(std::move(value));
    } else if (node.IsVariable()) {
      SLUICE_ASSIGN_OR_RETURN(
          Variable * variable,
          device_.variables().Declare(node.origin(), node.output_type(0)));
      storage_of_[node.output(0)] =
          NewStorage(node.output(0), Location::Kind::kVariable,
                     static_cast<uint32_t>(plan_.variables.size()));
      plan_.variables.push_back(variable);
    } else if (node.IsPlaceholder()) {
      const int64_t feed = FeedIndex(node);
      if (feed < 0) {
        return InvalidArgument(node.Describe() + ": it is no feed");
      }
      const auto index = static_cast<uint32_t>(feed);
      storage_of_[node.output(0)] =
          NewStorage(node.output(0), Location::Kind::kFeed, index);
      SetBytes(index, node.output_type(0), &plan_.feed_bytes);
    }
    return {};
  }

  static void SetBytes(uint32_t index, const TensorType& type,
                       std::vector<size_t>* bytes) {
    if (index >= bytes->size()) bytes->resize(index + 1);
    (*bytes)[index] = type.bytes();
  }

  int NewStorage(const Output& output, Location::Kind kind, uint32_t index) {
    auto uses = uses_.find(output);
    storages_.push_back({kind,
                         index,
                         output.type().bytes(),
                         uses == uses_.end() ? 0 : uses->second,
                         {},
                         output.index()});
    return static_cast<int>(storages_.size()) - 1;
  }

  int PartStorage(const Output& output) {
    const PartBuffers::Part& part = *parts_.Find(output);
    const auto [whole, is_new] = storage_of_.try_emplace(part.whole, -1);
    if (is_new) {
      whole->second = NewStorage(part.whole, Location::Kind::kArena, 0);
    }
    Storage storage = {Location::Kind::kArena, 0, output.type().bytes()};
    storage.whole = whole->second;
    storage.at = part.offset;
    storages_.push_back(storage);
    const int s = static_cast<int>(storages_.size()) - 1;
    storage_of_[output] = s;
    return s;
  }

  // That has the counts of s.
  Storage& WholeOf(int s) {
    return storages_[storages_[s].whole < 0 ? s : storages_[s].whole];
  }

  void Depend(const Node& on, Positions* positions) const {
    const Positions& after = after_.at(&on);
    positions->insert(after.begin(), after.end());
  }

  Status Emit(Node& node) {
    if (std::max(node.num_inputs(), node.num_outputs()) > kMostOperands) {
      return Internal(node.Describe() + ": a pass gave it too many operands");
    }
    const int position = static_cast<int>(plan_.instructions.size());
    KernelSpec spec = SpecOf(node, settings_.deterministic);
    spec.tf32 = settings_.precision == Precision::kTf32;
    SLUICE_ASSIGN_OR_RETURN(MadeKernel made, Prepare(spec));
    KernelPtr& kernel = made.kernel;

    Positions waits;
    for (const Output& input : node.inputs()) Depend(input.node(), &waits);
    for (const Node* control : node.control_inputs()) Depend(*control, &waits);

    Instruction instruction;
    instruction.kernel = static_cast<uint32_t>(plan_.kernels.size());
    instruction.first_location = static_cast<uint32_t>(operands_.size());
    instruction.num_inputs = static_cast<uint16_t>(node.num_inputs());
    instruction.num_outputs = static_cast<uint16_t>(node.num_outputs());
    for (const Output& input : node.inputs()) {
      const int s = storage_of_.at(input);
      operands_.push_back(s);
      WholeOf(s).touched.push_back(position);
    }
    NoteVariables(node);
    for (int i = 0; i < node.num_outputs(); ++i) {
      operands_.push_back(OutputStorage(node, i, position, &waits));
    }
    if (node.IsFetch()) {
      instruction.num_outputs = 1;
      const auto index = static_cast<uint32_t>(node.attrs().Int("index"));
      SetBytes(index, node.input(0).type(), &plan_.fetch_bytes);
      storages_.push_back({Location::Kind::kFetch,
                           index,
                           node.input(0).type().bytes(),
                           0,
                           {position}});
      operands_.push_back(static_cast<int>(storages_.size()) - 1);
    }
    for (const Output& input : node.inputs()) {
      --WholeOf(storage_of_.at(input)).unused;
    }
    const size_t workspace = kernel->workspace_bytes();
    storages_.push_back(
        {workspace > 0 ? Location::Kind::kArena : Location::Kind::kNone,
         0,
         workspace,
         0,
         {position}});
    operands_.push_back(static_cast<int>(storages_.size()) - 1);

    NotePending(node, static_cast<uint32_t>(position));
    NoteExchange(node, spec);
    after_[&node] = {position};
    waits_.emplace_back(waits.begin(), waits.end());
    plan_.kernels.push_back(std::move(kernel));
    plan_.instructions.push_back(instruction);
    const bool starts = node.op().wait != nullptr;
    plan_.labels.push_back(
        {node.name(), node.op().name,
         starts ? std::vector<TensorType>() : node.output_types(),
         node.location(), node.mutates(),
         made.def == nullptr ? "" : made.def->provider,
         std::move(made.refused)});
    return {};
  }

  void NotePending(const Node& node, uint32_t position) {
    if (node.op().wait != nullptr) started_[&node] = position;
    if (node.num_inputs() == 0) return;
    // What has a wait has no other user (Verify).
    const auto start = started_.find(&node.input(0).node());
    if (start != started_.end()) {
      plan_.pending.push_back({start->second, position});
    }
  }

  // By what other workers know it.
  void NoteExchange(const Node& node, const KernelSpec& spec) {
    if (!node.op().collective || device_.accelerator() == nullptr) return;
    plan_.exchanges += fmt::format("{} '{}' of {}", node.op().name, spec.origin,
                                   spec.inputs[0].ToString());
    if (spec.attrs.Has("mean") && spec.attrs.Bool("mean")) {
      plan_.exchanges += ", the mean";
    }
    if (spec.attrs.Has("root")) {
      plan_.exchanges += fmt::format(", rank {}'s", spec.attrs.Int("root"));
    }
    plan_.exchanges += '\n';
  }

  Result<MadeKernel> Prepare(const KernelSpec& spec) const {
    if (device_.type() == DeviceType::kNull) {
      MadeKernel made;
      made.kernel = KernelOf([](const KernelContext&) {});
      return made;
    }
    if (device_.accelerator() != nullptr) {
      SLUICE_RETURN_IF_ERROR(device_.accelerator()->Use());
    }
    return KernelTable::Global().Make(spec, device_.type());
  }

  // Which variables must have a value before the step, and which get one.
  void NoteVariables(const Node& node) {
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Storage& storage = storages_[storage_of_.at(node.input(i))];
      if (storage.kind != Location::Kind::kVariable) continue;
      if (i < node.mutates() && node.op().initializes != nullptr &&
          node.op().initializes(node)) {
        if (written_.insert(storage.index).second) {
          plan_.initializes.push_back(storage.index);
        }
      } else if (!written_.contains(storage.index) &&
                 read_.insert(storage.index).second) {
        plan_.reads.push_back(storage.index);
      }
    }
  }

  int OutputStorage(const Node& node, int i, int position, Positions* waits) {
    const Output output = node.output(i);
    int s;
    if (i == 0 && (node.mutates() > 0 || node.op().view)) {
      s = storage_of_.at(node.input(0));
    } else if (const int taken = i == 0 && !plan_.checked ? TakeOver(node) : -1;
               taken >= 0) {
      s = taken;
      // Everybody else must be done with the old value.
      for (int user : storages_[s].touched) {
        if (user != position) waits->insert(user);
      }
      storages_[s].unused += uses_.contains(output) ? uses_.at(output) : 0;
    } else if (parts_.Find(output) != nullptr) {
      s = PartStorage(output);
    } else {
      s = NewStorage(output, Location::Kind::kArena, 0);
    }
    WholeOf(s).touched.push_back(position);
    storage_of_[output] = s;
    return s;
  }

  // The storage of an input that output 0 may overwrite, or -1. Where one
  // tensor is several inputs, each of them has to bear it: Conv2DBiasAdd may
  // write over its addend, but not if that is what it convolves.
  int TakeOver(const Node& node) const {
    const auto& inplace = node.op().inplace;
    for (int candidate : inplace) {
      if (candidate >= node.num_inputs()) continue;
      const int s = storage_of_.at(node.input(candidate));
      const Storage& storage = storages_[s];
      if (!storage.placed() || storage.bytes != node.output_type(0).bytes()) {
        continue;
      }
      int here = 0;
      bool bear = true;
      for (int i = 0; i < node.num_inputs(); ++i) {
        if (storage_of_.at(node.input(i)) != s) continue;
        ++here;
        bear &= std::find(inplace.begin(), inplace.end(), i) != inplace.end() &&
                node.input(i).shape() == node.input(candidate).shape();
      }
      if (here == storage.unused && bear) return s;
    }
    return -1;
  }

  void PlaceBuffers() {
    std::vector<BufferRequest> requests;
    std::vector<int> storage_of_request;
    for (size_t s = 0; s < storages_.size(); ++s) {
      const Storage& storage = storages_[s];
      if (!storage.placed()) continue;
      requests.push_back(
          {storage.bytes, storage.touched.front(), storage.touched.back()});
      storage_of_request.push_back(static_cast<int>(s));
    }
    const MemoryPlan memory =
        plan_.checked ? PlanApart(requests) : PlanMemory(requests);
    plan_.arena_bytes = memory.arena_bytes;
    plan_.arena_lower_bound = memory.lower_bound;
    offsets_.resize(storages_.size());
    for (size_t r = 0; r < requests.size(); ++r) {
      const int s = storage_of_request[r];
      offsets_[s] = memory.offsets[r];
      plan_.buffers.push_back({requests[r].first, storages_[s].output,
                               requests[r].bytes, memory.offsets[r],
                               requests[r].last});
    }
    for (size_t s = 0; s < storages_.size(); ++s) {
      const Storage& storage = storages_[s];
      if (storage.whole >= 0) {
        offsets_[s] = offsets_[static_cast<size_t>(storage.whole)] + storage.at;
      }
    }
    for (int s : operands_) {
      plan_.locations.push_back(
          {storages_[s].kind, storages_[s].index, offsets_[s]});
      if (plan_.checked) plan_.operand_bytes.push_back(storages_[s].bytes);
    }
  }

  bool ChooseDataflow() const {
    if (device_.accelerator() != nullptr) return false;  // it has a queue
    if (mode_ != ExecutorMode::kAuto) {
      return mode_ == ExecutorMode::kDataflow && plan_.pending.empty();
    }
    return plan_.pending.empty() && DataflowPays(BytesTouched(), waits_);
  }

  // By each instruction.
  std::vector<double> BytesTouched() const {
    std::vector<double> bytes;
    for (const Instruction& instruction : plan_.instructions) {
      double sum = 0;
      const int operands = instruction.num_inputs + instruction.num_outputs;
      for (int o = 0; o < operands; ++o) {
        sum += static_cast<double>(
            storages_[operands_[instruction.first_location + o]].bytes);
      }
      bytes.push_back(sum);
    }
    return bytes;
  }

  // The arena's buffers and who touches them.
  std::vector<ArenaUse> ArenaUses() const {
    std::vector<ArenaUse> uses;
    for (size_t s = 0; s < storages_.size(); ++s) {
      const Storage& storage = storages_[s];
      if (!storage.placed() || storage.bytes == 0) continue;
      uses.push_back(
          {offsets_[s], offsets_[s] + storage.bytes, &storage.touched});
    }
    return uses;
  }

  const StepPart& part_;
  const Graph& graph_;
  Device& device_;
  const StepSettings& settings_;
  ExecutorMode mode_ = ExecutorMode::kAuto;  // of a Plan that is not checked
  Plan plan_;
  PartBuffers parts_;
  std::map<Output, int> uses_;
  std::vector<Storage> storages_;
  std::vector<size_t> offsets_;  // parallel to storages_
  std::map<Output, int> storage_of_;
  std::vector<int> operands_;  // storages, parallel to plan_.locations
  std::unordered_map<const Node*, Positions> after_;
  Waits waits_;
  std::set<uint32_t> written_, read_;        // variables
  std::map<const Node*, uint32_t> started_;  // by what has a wait
};

}  // namespace

void SetAutoExecutor(ExecutorMode mode) {
  auto_executor.store(mode);
}

Result<Plan> Compile(const StepPart& part, Device& device) {
  return Lowering(part, device).Run();
}

}  // namespace sluice
