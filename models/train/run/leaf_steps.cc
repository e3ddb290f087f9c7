#include "models/train/run/leaf_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dist/collective/reduce.h"
#include "engine/status.h"
#include "engine/threads.h"
#include "models/train/run/inference.h"

namespace sluice {
namespace {

std::vector<const Node*> ReductionsOf(const Graph& graph) {
  std::vector<const Node*> reductions;
  for (const auto& node : graph.nodes()) {
    if (!node->op().collective) continue;
    if (!node->Is("AllReduce") || !node->attrs().String("group").empty()) {
      throw Error(Code::kUnimplemented,
                  fmt::format("'{}' is no all-reduce over all workers, beside "
                              "which virtual workers are made for no "
                              "collective ({})",
                              node->name(), node->location()));
    }
    reductions.push_back(node.get());
  }
  return reductions;
}

std::vector<Output> InputsOf(const std::vector<const Node*>& nodes) {
  std::vector<Output> inputs;
  for (const Node* node : nodes) inputs.push_back(node->input(0));
  return inputs;
}

std::vector<Output> Joined(std::vector<Output> some,
                           const std::vector<Output>& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

// All that `outputs` need.
std::set<const Node*> Needed(const std::vector<Output>& outputs) {
  std::set<const Node*> needed;
  std::vector<const Node*> open;
  for (const Output& output : outputs) open.push_back(&output.node());
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!needed.insert(node).second) continue;
    if (node->op().collective) {
      throw Error(Code::kUnimplemented,
                  fmt::format("'{}' is an exchange within the gradients, which "
                              "virtual workers are not made for; batch "
                              "normalisation has to be by each worker's batch "
                              "({})",
                              node->name(), node->location()));
    }
    for (const Output& input : node->inputs()) open.push_back(&input.node());
    for (const Node* before : node->control_inputs()) open.push_back(before);
  }
  return needed;
}

// Of what is written beside the training's own updates nothing may be left out.
void CheckUpdates(const Node& update, const std::set<const Node*>& by_leaf) {
  if (update.mutates() > 0 && !by_leaf.contains(&update)) {
    throw Error(
        Code::kUnimplemented,
        fmt::format("'{}' updates '{}' in every step, which has no "
                    "mean over virtual workers ({})",
                    update.name(), update.input(0).name(), update.location()));
  }
  if (!update.Is("NoOp")) return;
  for (const Node* member : update.control_inputs()) {
    CheckUpdates(*member, by_leaf);
  }
}

}  // namespace

LeafSteps::LeafSteps(const Graph& graph, Session& session,
                     const Features& features, const Workers& workers,
                     Options options)
    : graph_(graph),
      session_(session),
      workers_(workers),
      options_(std::move(options)),
      reductions_(ReductionsOf(graph)),
      by_leaf_(Needed(InputsOf(reductions_))),
      gradients_(session, features, InputsOf(reductions_)),
      measuring_(session, features,
                 Joined(InputsOf(reductions_), options_.measured)) {
  for (const Operation& update : graph.updates()) {
    CheckUpdates(update.node(), by_leaf_);
  }
  for (const Node* node : by_leaf_) {
    for (int i = 0; i < node->mutates(); ++i) {
      const Output& variable = node->input(i);
      const bool known =
          std::any_of(statistics_.begin(), statistics_.end(),
                      [&](const Output& other) { return other == variable; });
      if (!known) statistics_.push_back(variable);
    }
  }
  before_.resize(statistics_.size());
}

StepInfo LeafSteps::Prepare(int64_t examples) {
  StepInfo info = gradients_.Prepare(examples);
  std::vector<FeedShape> feeds;
  for (const Node* node : reductions_) {
    feeds.push_back({node->output(0), node->output(0).shape()});
  }
  update_ = session_.Prepare(feeds, {options_.learning_rate}, {options_.train});
  rates_ = update_.MakeFetches();
  return info;
}

void LeafSteps::Run(std::span<const Example> shares, const OnLeaf& measure) {
  const ScopedFlushDenormals flush;  // as where gradients are computed
  for (size_t i = 0; i < statistics_.size(); ++i) {
    session_.Read(statistics_[i], &before_[i]);
  }
  row_.Clear();
  int64_t leaf = workers_.mine().begin;
  for (size_t i = 0; i < shares.size(); ++i, ++leaf) {
    if (RowsOf(shares[i]) == 0) {
      Append(leaf, Nothing());
      continue;
    }
    session_.set_replica(static_cast<uint32_t>(leaf));
    std::span<const Tensor> values =
        (measure ? measuring_ : gradients_).Run(shares[i]);
    Append(leaf, values.first(reductions_.size()));
    if (measure) measure(i, values.subspan(reductions_.size()));
    for (size_t s = 0; s < statistics_.size(); ++s) {
      session_.Write(statistics_[s], before_[s]);
    }
  }
  Reduce();
  session_.set_replica(0);
  update_.Run(slots_[0], rates_);
}

std::span<const Tensor> LeafSteps::Nothing() {
  if (nothing_.empty()) {
    for (const Node* node : reductions_) {
      const Output& output = node->output(0);
      nothing_.push_back(Tensor::Zeros(output.dtype(), output.shape()));
    }
  }
  return nothing_;
}

void LeafSteps::Append(int64_t leaf, std::span<const Tensor> values) {
  // Their sum may be beyond the range of the half types.
  for (Tensor value : values) {
    if (!IsHalf(value.dtype())) continue;
    dist::DivideBy(value.dtype(), value.raw(), value.elements(),
                   static_cast<int>(workers_.leaves()));
  }
  const auto add = [&](size_t slot) {
    for (size_t i = 0; i < values.size(); ++i) {
      dist::AddTo(values[i].dtype(), slots_[slot][i].raw(), values[i].raw(),
                  values[i].elements());
    }
    values = slots_[slot];
  };
  const auto put = [&](size_t slot) {
    if (slot == slots_.size()) slots_.emplace_back();
    std::vector<Tensor>& place = slots_[slot];
    if (place.empty()) {
      for (const Tensor& value : values) place.push_back(value.Clone());
      return;
    }
    if (values.data() == place.data()) return;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].bytes() == 0) continue;
      std::memcpy(place[i].raw(), values[i].raw(), values[i].bytes());
    }
  };
  row_.Append({leaf, 1}, add, put);
}

// What all have goes into the first slot.
void LeafSteps::Reduce() {
  for (size_t i = 0; i < reductions_.size(); ++i) {
    Tensor& sum = slots_[0][i];
    std::vector<const void*> sums;
    for (size_t slot = 0; slot < row_.size(); ++slot) {
      sums.push_back(std::as_const(slots_[slot][i]).raw());
    }
    workers_.SumTree(reductions_[i]->name(), sums, &sum);
    if (!IsHalf(sum.dtype())) {
      dist::DivideBy(sum.dtype(), sum.raw(), sum.elements(),
                     static_cast<int>(workers_.leaves()));
    }
    if (reductions_[i] == &options_.loss.node()) loss_ = sum.At(0);
  }
}

bool LeafSteps::ByLeaf(const std::string& node) const {
  const Node* const found = graph_.Find(node);
  return found == nullptr || by_leaf_.contains(found);
}

}  // namespace sluice
