// Elementwise nodes of one shape as one Fused node, whose program runs over
// tiles in cache (kernels/cpu/fused/fused.cc).
//
//   down the edges   a producer joins its consumer: the value between them is
//                    not read, nor written unless others use it, in which case
//                    it becomes a further output
//   side by side     two users of one tensor join: it is read once
//   into a sum       over leading or trailing dimensions, a mean included: what
//                    is summed is not read again
//
// Nothing is computed twice. Comparisons join the Select they choose for, since
// bool is no dtype of tensors here. Operands that BroadcastTo had spread out
// are read as they were before.
#include <algorithm>

#include "engine/semantics/axis_form.h"
#include "graph/passes/fuse_rules.h"
#include "graph/passes/fused_cluster.h"

namespace sluice::passes {
namespace {

// Rows that make their sums little beside them.
constexpr int64_t kLeastRows = 64;
// Places between siblings in the order: farther ones would keep their operands
// alive for long.
constexpr int64_t kMostDistance = 32;

// Bytes of the inputs that both read element by element.
int64_t SharedBytes(const FusedCluster& a, const FusedCluster& b) {
  int64_t bytes = 0;
  for (const Output& input : a.inputs) {
    if (a.ReadsWhole(input) &&
        std::count(b.inputs.begin(), b.inputs.end(), input) > 0) {
      bytes += BytesOf(input);
    }
  }
  return bytes;
}

// Of the cluster's own members, where it is not one node yet.
int64_t ChoiceBytes(const FusedCluster& cluster) {
  return 2 * static_cast<int64_t>(cluster.members.size() - 1) *
         cluster.shape().elements();
}

// What a sum does to the dimensions of its operand.
enum class SumForm : uint8_t { kNone, kLeading, kTrailing };

SumForm FormOf(const Node& node) {
  if (!node.op().sums && !node.op().averages) return SumForm::kNone;
  const Shape& x = node.input(0).shape();
  const std::vector<DimGroup> groups =
      GroupDims(x, ReducedDims(x, node.output_type(0).shape, node.attrs()));
  if (groups.empty() || groups.size() > 2) return SumForm::kNone;
  if (groups.back().reduced) return SumForm::kTrailing;
  return groups.size() == 2 ? SumForm::kLeading : SumForm::kNone;
}

class Fuser {
 public:
  Fuser(NodeMerger& merger, const DeviceDescriptions& devices, Fusions* done)
      : merger_(merger), devices_(devices), done_(done) {}

  void Run() {
    for (Node* node : merger_.Order()) {
      if (node->Is("BroadcastTo")) ReadUnspread(*node);
    }
    for (Node* node : merger_.Order()) {
      if (merger_.gone(*node)) continue;
      std::optional<FusedCluster> cluster = ClusterOf(*node, merger_);
      while (cluster && JoinProducer(*cluster)) {
        cluster = ClusterOf(*node, merger_);
      }
    }
    for (Node* node : merger_.Order()) JoinUsers(*node);
    for (Node* node : merger_.Order()) {
      if (!merger_.gone(*node)) JoinSum(*node);
    }
  }

 private:
  bool LargeEnough(const FusedCluster& cluster) const {
    const DeviceDescription* device =
        FindDevice(devices_, cluster.root->device());
    const int64_t least = device == nullptr
                              ? DeviceDescription().least_fused_elements
                              : device->least_fused_elements;
    return cluster.shape().elements() >= least;
  }

  bool FitsInOneNode(const FusedCluster& a, const FusedCluster& b) const {
    return a.shape() == b.shape() && a.dtype() == b.dtype() &&
           a.root->device() == b.root->device() &&
           a.inputs.size() + b.inputs.size() <= kMostProgramInputs &&
           a.steps.size() + b.steps.size() <= kMostProgramSteps &&
           a.outputs.size() + b.outputs.size() <= kMostProgramOutputs &&
           LargeEnough(a);
  }

  // Lets users that broadcast by themselves read what was spread.
  void ReadUnspread(Node& spread) {
    const Output x = spread.input(0);
    if (!spread.control_inputs().empty() || IsVariable(x)) return;
    for (const NodeMerger::Use& use : merger_.UsesOf(spread.output(0))) {
      Node& user = *use.user;
      if (!user.op().broadcasts) continue;
      const Output& other = user.input(1 - use.input);
      if (other.shape() != user.output_type(0).shape || other == x ||
          user.device() != spread.device()) {
        continue;
      }
      std::vector<Output> inputs = user.inputs();
      inputs[use.input] = x;
      merger_.SetInputs(user, inputs);
    }
    if (merger_.uses(spread).empty()) merger_.Drop(spread);
  }

  // One step down the edges.
  bool JoinProducer(const FusedCluster& consumer) {
    for (const Output& input : consumer.inputs) {
      const std::optional<FusedCluster> producer =
          ClusterOf(input.node(), merger_);
      if (!producer || !FitsInOneNode(*producer, consumer)) continue;
      int64_t saved = SharedBytes(*producer, consumer) +
                      ChoiceBytes(*producer) + ChoiceBytes(consumer);
      std::vector<int> kept;
      for (int i = 0; i < producer->root->num_outputs(); ++i) {
        const Output value = producer->root->output(i);
        int64_t inside = 0, outside = 0;
        for (const NodeMerger::Use& use : merger_.UsesOf(value)) {
          const bool member = std::count(consumer.members.begin(),
                                         consumer.members.end(), use.user) > 0;
          member ? ++inside : ++outside;
        }
        if (outside > 0) kept.push_back(i);
        if (inside > 0) saved += (outside > 0 ? 1 : 2) * BytesOf(value);
      }
      if (Join(*producer, consumer, kept, saved)) return true;
    }
    return false;
  }

  // Users of one tensor, each joined to the one before.
  void JoinUsers(Node& node) {
    for (int i = 0; i < node.num_outputs(); ++i) {
      bool joined = true;
      while (joined) {
        std::vector<Node*> users;
        for (const NodeMerger::Use& use : merger_.UsesOf(node.output(i))) {
          users.push_back(use.user);
        }
        std::sort(users.begin(), users.end(), [&](Node* a, Node* b) {
          return merger_.place(*a) < merger_.place(*b);
        });
        users.erase(std::unique(users.begin(), users.end()), users.end());
        joined = false;
        for (size_t u = 1; u < users.size() && !joined; ++u) {
          joined = JoinSiblings(*users[u - 1], *users[u]);
        }
      }
    }
  }

  bool JoinSiblings(Node& a, Node& b) {
    if (merger_.place(b) - merger_.place(a) > kMostDistance) return false;
    const std::optional<FusedCluster> first = ClusterOf(a, merger_);
    const std::optional<FusedCluster> second = ClusterOf(b, merger_);
    if (!first || !second || !FitsInOneNode(*first, *second)) return false;
    std::vector<int> kept(first->outputs.size());
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<int>(i);
    const int64_t shared = SharedBytes(*first, *second);
    return shared > 0 &&
           Join(*first, *second, kept,
                shared + ChoiceBytes(*first) + ChoiceBytes(*second));
  }

  // A sum of what a cluster computes becomes its last output.
  void JoinSum(Node& sum) {
    const SumForm form = FormOf(sum);
    if (form == SumForm::kNone) return;
    const int64_t results = sum.output_type(0).shape.elements();
    if (form == SumForm::kLeading &&
        sum.input(0).shape().elements() < kLeastRows * results) {
      return;
    }
    const Output value = sum.input(0);
    std::optional<FusedCluster> cluster = ClusterOf(value.node(), merger_);
    if (!cluster || !LargeEnough(*cluster) ||
        cluster->outputs.size() >= kMostProgramOutputs) {
      return;
    }
    std::vector<Node*> members = cluster->members;
    members.push_back(&sum);
    if (!merger_.CanMerge(members)) return;
    NodeMerger::Merged merged = cluster->AsNode();
    merged.op = &OpTable::Global().Get("FusedSum");
    // Of the outputs those that others use stay, and the sum is the last.
    const std::vector<int64_t> before = merged.attrs.Ints("outputs");
    std::vector<int64_t> values;
    bool written = false;
    merged.types.clear();
    merged.outputs.clear();
    for (int i = 0; i < value.node().num_outputs(); ++i) {
      const Output output = value.node().output(i);
      const size_t here = output == value ? 1 : 0;
      if (merger_.UsesOf(output).size() == here) continue;
      written |= output == value;
      merged.outputs[output] = static_cast<int>(values.size());
      merged.types.push_back(output.type());
      values.push_back(before[i]);
    }
    merged.outputs[sum.output(0)] = static_cast<int>(values.size());
    merged.types.push_back(sum.output_type(0));
    values.push_back(before[value.index()]);
    merged.attrs.Set("outputs", values);
    merged.attrs.Set("sum", form == SumForm::kLeading ? "leading" : "trailing");
    merged.attrs.Set("sum_shape", sum.output_type(0).shape);
    const auto count = static_cast<double>(cluster->shape().elements()) /
                       static_cast<double>(results);
    merged.attrs.Set("sum_scale", sum.op().averages ? 1 / count : 1.0);
    MergeAs(merger_, members, sum, merged,
            (written ? 1 : 2) * BytesOf(value) + ChoiceBytes(*cluster), done_);
  }

  bool Join(const FusedCluster& producer, const FusedCluster& consumer,
            const std::vector<int>& kept, int64_t saved) {
    const FusedCluster joined = Joined(producer, consumer, kept);
    if (!merger_.CanMerge(joined.members)) return false;
    NodeMerger::Merged merged = joined.AsNode();
    for (size_t i = 0; i < kept.size(); ++i) {
      merged.outputs[producer.root->output(kept[i])] =
          static_cast<int>(consumer.outputs.size() + i);
    }
    MergeAs(merger_, joined.members, *joined.root, merged, saved, done_);
    return true;
  }

  NodeMerger& merger_;
  const DeviceDescriptions& devices_;
  Fusions* done_;
};

}  // namespace

void FuseElementwise(NodeMerger& merger, const DeviceDescriptions& devices,
                     Fusions* done) {
  Fuser(merger, devices, done).Run();
}

}  // namespace sluice::passes
