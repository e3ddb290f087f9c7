#include "models/train/run/leaf_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "dist/collective/reduce.h"
#include "engine/status.h"
#include "engine/threads.h"
#include "graph/session/cluster.h"
#include "graph/traversal.h"
#include "models/optim/reduce_gradients.h"

namespace sluice {
namespace {

std::vector<Operation> OperationsOf(const std::vector<Output>& outputs) {
  return {outputs.begin(), outputs.end()};
}

using NodeSet = std::unordered_set<const Node*>;

NodeSet NodesBehind(const std::vector<Operation>& ends) {
  std::vector<const Node*> nodes;
  for (const Operation& end : ends) nodes.push_back(&end.node());
  return Needed(nodes);
}

std::vector<const Node*> ReductionsOf(const Graph& graph,
                                      const Operation& train,
                                      const Output& loss) {
  const NodeSet needed = NodesBehind({train, loss});
  std::vector<const Node*> reductions;
  for (const auto& node : graph.nodes()) {
    if (!node->op().collective || !needed.contains(node.get())) continue;
    if (!node->Is("AllReduce") || !node->attrs().String("group").empty()) {
      throw Error(Code::kUnimplemented,
                  fmt::format("'{}' is no all-reduce over all workers, beside "
                              "which virtual workers and mirrored devices are "
                              "made for no collective ({})",
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

// That what all leaves have is divided by their number, as it is (Reduce).
void CheckMeans(const std::vector<const Node*>& reductions) {
  for (const Node* node : reductions) {
    if (node->attrs().Bool("mean")) continue;
    throw Error(Code::kUnimplemented,
                fmt::format("'{}' is a sum over all workers: beside virtual "
                            "workers and mirrored devices all-reduces are "
                            "means ({})",
                            node->name(), node->location()));
  }
}

// That nothing is left out of what is written beside the training's own updates
// (`beside`): leaves write it, are put back (LeafGradients), and `train` then
// writes the mean.
void CheckUpdates(const std::vector<Operation>& beside, const NodeSet& by_leaf,
                  const Operation& train) {
  std::set<Output> means;
  for (const Node* write : WritesOf({train})) {
    if (by_leaf.contains(write)) continue;
    for (int i = 0; i < write->mutates(); ++i) means.insert(write->input(i));
  }
  for (const Node* write : WritesOf(beside)) {
    for (int i = 0; i < write->mutates(); ++i) {
      const Output& variable = write->input(i);
      if (by_leaf.contains(write) && means.contains(variable)) continue;
      throw Error(
          Code::kUnimplemented,
          fmt::format("'{}' updates '{}' in every step, which has no mean over "
                      "virtual workers or mirrored devices ({})",
                      write->name(), variable.name(), write->location()));
    }
  }
}

std::vector<Output> VariablesIn(const NodeSet& nodes) {
  std::vector<Output> variables;
  for (const Node* node : nodes) {
    if (node->IsVariable()) variables.push_back(node->output(0));
  }
  return variables;
}

// The variables that are written by leaves.
std::vector<Output> WrittenBy(const NodeSet& by_leaf) {
  std::vector<Output> written;
  for (const Node* node : by_leaf) {
    for (int i = 0; i < node->mutates(); ++i) {
      const Output& variable = node->input(i);
      if (std::find(written.begin(), written.end(), variable) ==
          written.end()) {
        written.push_back(variable);
      }
    }
  }
  return written;
}

}  // namespace

void RequireNoExchange(const std::vector<Output>& computed) {
  for (const Node* node : NodesBehind(OperationsOf(computed))) {
    if (!node->op().collective && !node->op().asks_seat) continue;
    throw Error(Code::kUnimplemented,
                fmt::format("'{}' is of several workers, within what virtual "
                            "workers, micro-batches and mirrored devices "
                            "compute each by itself: neither gradients nor "
                            "metrics and summaries can be of it, and batch "
                            "normalisation has to be by each one's batch ({})",
                            node->name(), node->location()));
  }
}

LeafSteps::LeafSteps(const Graph& graph, Session& session,
                     const Features& features, const Workers& workers,
                     DeviceThreads& devices, Options options)
    : graph_(graph),
      workers_(workers),
      options_(std::move(options)),
      reductions_(ReductionsOf(graph, options_.train, options_.loss)),
      by_leaf_(NodesBehind(OperationsOf(InputsOf(reductions_)))) {
  std::vector<Output> computed = InputsOf(reductions_);
  std::vector<Operation> beside = OperationsOf(computed);
  computed.insert(computed.end(), options_.measured.begin(),
                  options_.measured.end());
  RequireNoExchange(computed);
  CheckMeans(reductions_);
  const bool staged = workers.stages() > 1;
  if (staged || options_.served) {
    // AllReduceOptions::shared: they write none before they have met.
    RefuseWrites(beside, "gradients are of",
                 "where workers share variables, on parameter servers or in "
                 "pipeline stages");
  } else {
    const std::vector<Operation>& updates = graph.updates();
    beside.insert(beside.end(), updates.begin(), updates.end());
    CheckUpdates(beside, by_leaf_, options_.train);
  }
  if (options_.mirrored.any()) {
    mirrors_ = std::make_unique<Mirrors>(
        graph, session, devices, options_.mirrored.variables_on_each,
        options_.session, VariablesIn(NodesBehind(OperationsOf(computed))));
  } else {
    mirrors_ = std::make_unique<Mirrors>(session, devices);
  }
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (IsHere(*reductions_[i])) here_.push_back(i);
  }
  for (size_t i = 0; i < mirrors_->size(); ++i) {
    gradients_.push_back(std::make_unique<LeafGradients>(
        mirrors_->session(i), features,
        LeafGradients::Options{
            InputsOf(reductions_), options_.measured, WrittenBy(by_leaf_),
            workers.leaves(), here_,
            staged ? session.options().concurrent_runs : 1}));
  }
}

StepInfo LeafSteps::Prepare(int64_t examples, int64_t batch) {
  std::vector<StepInfo> infos(gradients_.size());
  mirrors_->threads().Run([&](size_t device) {
    infos[device] = gradients_[device]->Prepare(
        examples, static_cast<int>(gradients_.size()), batch);
  });
  std::vector<FeedShape> feeds;
  for (const Node* node : reductions_) {
    feeds.push_back({node->output(0), node->output(0).shape()});
  }
  if (!updates()) return infos[0];
  for (Session* session : mirrors_->updating()) {
    Updating& update = updates_.emplace_back();
    update.step =
        session->Prepare(feeds, {options_.learning_rate}, {options_.train});
    update.rate = update.step.MakeFetches();
  }
  return infos[0];
}

void LeafSteps::Run(std::span<const Example> shares, const OnLeaf& measure) {
  const auto devices = static_cast<int64_t>(gradients_.size());
  mirrors_->Begin();
  mirrors_->threads().Run([&](size_t device) {
    mirrors_->Take(device);
    const LeafRange mine = LeavesOf(static_cast<int64_t>(shares.size()),
                                    static_cast<int64_t>(device), devices);
    LeafGradients::OnLeaf on_leaf;
    if (measure) {
      on_leaf = [&](size_t i, std::span<const Tensor> values) {
        measure(static_cast<size_t>(mine.begin) + i, values);
      };
    }
    gradients_[device]->Run(workers_.mine().begin + mine.begin,
                            shares.subspan(static_cast<size_t>(mine.begin),
                                           static_cast<size_t>(mine.size())),
                            on_leaf);
  });
  Reduce();
  const std::span<const Tensor> sums = gradients_[0]->sums().slot(0);
  std::vector<Tensor> means(reductions_.size());
  for (size_t i = 0; i < here_.size(); ++i) means[here_[i]] = sums[i];
  Update(means);
}

void LeafSteps::Update(std::span<const Tensor> means) {
  if (updates_.size() == 1) {
    updates_[0].step.Run(means, updates_[0].rate);
  } else if (updates()) {
    mirrors_->threads().Run([&](size_t device) {
      updates_[device].step.Run(means, updates_[device].rate);
    });
  }
  if (!options_.served) return;
  if (updates()) served_rate_ = updates_[0].rate[0].At(0);
  // Nobody reads what is on servers before it is written.
  workers_.TakeFromFirst("update", &served_rate_, sizeof(served_rate_));
  // Who updates counts by that, and dropout goes by it.
  Session& session = mirrors_->session(0);
  if (!updates()) session.set_step(session.step() + 1);
}

bool LeafSteps::IsHere(const Node& reduction) const {
  const SessionOptions& session = mirrors_->session(0).options();
  const std::string& asked = reduction.device();
  return session.task.empty() ||
         sluice::IsHere(asked.empty() ? session.devices[0] : asked,
                        session.task);
}

// What all have goes into the first slot.
void LeafSteps::Reduce() {
  const ScopedFlushDenormals flush;  // as where gradients are computed
  LeafSums& sums = gradients_[0]->sums();
  for (size_t i = 1; i < gradients_.size(); ++i) {
    sums.Append(gradients_[i]->sums());
  }
  if (workers_.replicas() == 1) sums.Join();
  for (size_t i = 0; i < here_.size(); ++i) {
    const Node& reduction = *reductions_[here_[i]];
    Tensor& sum = sums.slot(0)[i];
    std::vector<const void*> parts;
    for (size_t slot = 0; slot < sums.size(); ++slot) {
      parts.push_back(std::as_const(sums.slot(slot)[i]).raw());
    }
    workers_.SumTree(reduction.name(), parts, &sum);
    if (!IsHalf(sum.dtype())) {
      dist::DivideBy(sum.dtype(), sum.raw(), sum.elements(),
                     static_cast<int>(workers_.leaves()));
    }
    if (&reduction == &options_.loss.node()) loss_ = sum.At(0);
  }
}

bool LeafSteps::ByLeaf(const std::string& node) const {
  const Node* const found = graph_.Find(node);
  return found == nullptr || by_leaf_.contains(found);
}

}  // namespace sluice
