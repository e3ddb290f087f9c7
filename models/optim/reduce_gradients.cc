#include "models/optim/reduce_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/semantics/random.h"
#include "graph/ops/array.h"
#include "graph/ops/collective.h"
#include "graph/ops/control.h"
#include "graph/ops/element_updates.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/ops/state.h"
#include "graph/traversal.h"
#include "models/optim/contributions.h"

namespace sluice {
namespace {

// A tensor to be reduced, and the variable that it is for.
struct Part {
  Output value;  // of concrete shape; becomes the mean
  Output variable;

  // That it is reduced on.
  const std::string& device() const { return variable.node().device(); }
};

size_t BytesOf(const Output& value) {
  return static_cast<size_t>(value.shape().elements()) * SizeOf(value.dtype());
}

Output As(DType dtype, const Output& value) {
  return value.dtype() == dtype ? value : Cast(value, dtype);
}

// By which workers know a bucket from one of other variables, or of the same in
// another order, that has as many elements: all-reduces of other names are an
// error on all of them.
std::string BucketName(const std::vector<Part*>& parts) {
  std::string first = parts[0]->variable.name();
  if (parts.size() == 1) return first;
  std::string all;
  for (const Part* part : parts) {
    all += fmt::format("{} {}\n", part->variable.name(),
                       part->value.shape().ToString());
  }
  return fmt::format("{}_and_{}_{:016x}", first, parts.size() - 1,
                     HashName(all));
}

// One all-reduce for all of them.
void ReduceBucket(const std::vector<Part*>& parts) {
  Graph& graph = parts[0]->value.graph();
  DeviceScope there(graph, parts[0]->device());
  const std::string name = BucketName(parts);
  if (parts.size() == 1) {
    parts[0]->value = AllReduce(parts[0]->value, Reduction::kMean, name);
    return;
  }
  std::vector<Output> flat;
  for (const Part* part : parts) flat.push_back(Reshape(part->value, {-1}));
  const Output bucket = AllReduce(Concat(flat, 0), Reduction::kMean, name);
  int64_t offset = 0;
  for (Part* part : parts) {
    const Shape shape = part->value.shape();
    part->value = Reshape(Slice(bucket, {offset}, {shape.elements()}), shape);
    offset += shape.elements();
  }
}

void ReduceInBuckets(std::vector<Part>& parts, const BucketBytes& buckets) {
  struct Bucket {
    std::vector<Part*> parts;
    size_t bytes = 0;
  };
  std::map<std::pair<std::string, DType>, Bucket> open;
  size_t wanted = buckets.first;  // bytes
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (BytesOf(part->value) >= wanted) {
      ReduceBucket({&*part});
      wanted = buckets.others;
      continue;
    }
    Bucket& bucket = open[{part->device(), part->value.dtype()}];
    bucket.parts.push_back(&*part);
    bucket.bytes += BytesOf(part->value);
    if (bucket.bytes < wanted) continue;
    ReduceBucket(bucket.parts);
    wanted = buckets.others;
    bucket = {};
  }
  for (const auto& [kind, bucket] : open) {
    if (!bucket.parts.empty()) ReduceBucket(bucket.parts);
  }
}

// That what they write can be known without writing it, and has a mean.
void CheckAssigns(const Node& node) {
  if (node.Is("Assign") && IsFloating(node.input(0).dtype())) return;
  throw Error(
      Code::kUnimplemented,
      fmt::format("'{}' updates '{}' in every step, other than by a mean of "
                  "all workers: not with parameter servers, nor in an elastic "
                  "job ({})",
                  node.name(), node.input(0).name(), node.location()));
}

// That no count is one of this worker's share of a batch, which alone would be
// kept: what is no floating number has no mean.
void CheckCounts(const Node& node) {
  for (int i = 0; i < node.mutates(); ++i) {
    const Output& variable = node.input(i);
    if (IsFloating(variable.dtype())) continue;
    // What all have exchanged is of all.
    const auto before = Needed(
        {&node}, [](const Node& needed) { return !needed.op().collective; });
    const bool fed = std::any_of(
        before.begin(), before.end(),
        [](const Node* needed) { return needed->Is("Placeholder"); });
    if (!fed) return;
    throw Error(
        Code::kUnimplemented,
        fmt::format("'{}' updates '{}', {} numbers, by what is in a worker's "
                    "share of a batch, which has no mean over workers: "
                    "AllReduce(x, Reduction::kSum) counts all of it ({})",
                    node.name(), variable.name(), NameOf(variable.dtype()),
                    node.location()));
  }
}

// A floating variable and the node that writes it; of several, which have an
// order, the last: it has the final value.
struct LastWrite {
  Output variable;
  Node* node;
  bool only = true;
};
std::vector<LastWrite> LastWritesAmong(const std::vector<Node*>& writes) {
  std::vector<LastWrite> last;
  for (Node* node : writes) {
    for (int i = 0; i < node->mutates(); ++i) {
      const Output& variable = node->input(i);
      if (!IsFloating(variable.dtype())) continue;
      const auto before = std::find_if(
          last.begin(), last.end(),
          [&](const LastWrite& other) { return other.variable == variable; });
      if (before == last.end()) {
        last.push_back({variable, node});
      } else {
        before->node = node;
        before->only = false;
      }
    }
  }
  return last;
}

// What the variable is then.
Output ValueAfter(const LastWrite& write) {
  if (write.node->input(0) == write.variable) return write.node->output(0);
  DeviceScope there(write.variable.graph(), write.variable.node().device());
  return WithDependencies({Operation(write.node)}, write.variable);
}

// The same of an Assign, without it.
Output ValueWithout(const LastWrite& write) {
  const Node& assign = *write.node;
  const Output condition = ConditionOf(assign);
  if (!condition.valid()) return assign.input(1);
  DeviceScope there(write.variable.graph(), write.variable.node().device());
  return Select(condition, assign.input(1), write.variable);
}

// Whether ValueWithout is to the bit what ValueAfter is, and of its shape.
bool IsPlain(const LastWrite& write) {
  const Node& node = *write.node;
  return write.only && node.Is("Assign") && node.attrs().Int("first_row") < 0 &&
         // What it waits for may write what it assigns.
         node.control_inputs().empty() && node.input(1).shape().concrete();
}

// What is to be reduced.
Output OwnValue(const LastWrite& write, OwnWrites own) {
  // Rather without the write, which may wait for much: with loss scaling for
  // all gradients.
  if (own == OwnWrites::kFirst && IsPlain(write)) return ValueWithout(write);
  if (own != OwnWrites::kNever) return ValueAfter(write);
  const Output value = ValueWithout(write);
  RefuseWrites({Operation(value)}, "another update is of",
               "where workers share variables, nor in an elastic job");
  return value;
}

}  // namespace

void ReduceGradients(std::vector<GradientAndVariable>& pairs, DType between,
                     const BucketBytes& buckets,
                     const std::map<Output, Output>& rows) {
  if (pairs.empty()) return;
  NameScope names(pairs[0].gradient.graph(), "reduce_gradients");
  std::vector<Part> parts;
  std::vector<GradientAndVariable*> reduced;  // parallel
  for (GradientAndVariable& pair : pairs) {
    if (rows.contains(pair.variable)) continue;
    Output& gradient = pair.gradient;
    const Node& variable = pair.variable.node();
    DeviceScope there(gradient.graph(), variable.device());
    if (variable.part_of() > 0) {
      // All of it is there already, the sum of all workers'.
      gradient =
          gradient / Cast(NumWorkers(gradient.graph()), gradient.dtype());
      continue;
    }
    parts.push_back(
        {gradient.dtype() == DType::kFloat32 ? As(between, gradient) : gradient,
         pair.variable});
    reduced.push_back(&pair);
  }
  ReduceInBuckets(parts, buckets);
  for (size_t i = 0; i < parts.size(); ++i) {
    Output& gradient = reduced[i]->gradient;
    DeviceScope there(gradient.graph(), parts[i].device());
    gradient = As(gradient.dtype(), parts[i].value);
  }
}

std::vector<Node*> WritesOf(const std::vector<Operation>& operations) {
  if (operations.empty()) return {};
  std::vector<const Node*> ends;
  for (const Operation& operation : operations) {
    ends.push_back(&operation.node());
  }
  const auto needed = Needed(ends);
  std::vector<Node*> writes;
  for (const auto& node : ends[0]->graph().nodes()) {
    if (node->mutates() > 0 && needed.contains(node.get())) {
      writes.push_back(node.get());
    }
  }
  return writes;
}

void RefuseWrites(const std::vector<Operation>& operations,
                  std::string_view what, std::string_view where) {
  const std::vector<Node*> writes = WritesOf(operations);
  if (writes.empty()) return;
  const Node& first = *writes[0];
  throw Error(Code::kUnimplemented,
              fmt::format("'{}' updates '{}', and {} what it wrote: not {} "
                          "({})",
                          first.name(), first.input(0).name(), what, where,
                          first.location()));
}

std::vector<Operation> ReduceUpdates(const std::vector<Node*>& writes,
                                     const Output& weight, size_t bucket_bytes,
                                     OwnWrites own,
                                     Contributions* contributions) {
  for (const Node* write : writes) {
    own == OwnWrites::kNever ? CheckAssigns(*write) : CheckCounts(*write);
  }
  const std::vector<LastWrite> last = LastWritesAmong(writes);
  if (last.empty()) return {};
  Graph& graph = writes[0]->graph();
  NameScope names(graph, "reduce_updates");
  std::vector<Part> parts;
  for (const LastWrite& write : last) {
    Output value = OwnValue(write, own);
    if (weight.valid()) {
      value = Select(Greater(weight, 0), value * Cast(weight, value.dtype()),
                     ZerosLike(value));
    }
    parts.push_back({value, write.variable});
  }
  if (contributions == nullptr) {
    ReduceInBuckets(parts, {bucket_bytes, bucket_bytes});
  }
  std::vector<Operation> assigned;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Output& variable = parts[i].variable;
    const Output mean = contributions == nullptr
                            ? parts[i].value
                            : contributions->Mean(parts[i].value, variable);
    std::vector<Operation> first;
    if (own == OwnWrites::kFirst) first.emplace_back(last[i].node);
    const ControlScope behind(graph, first);
    assigned.emplace_back(Assign(variable, mean));
  }
  return assigned;
}

}  // namespace sluice
