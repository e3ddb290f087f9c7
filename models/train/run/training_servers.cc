// Where a training with parameter servers is computed, and by whom.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "dist/servers/placement.h"
#include "graph/ops/elementwise.h"
#include "models/optim/contributions.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/loss_scale.h"
#include "models/train/run/served_tables.h"
#include "models/train/run/training_run.h"

namespace sluice {
namespace {

// The exchanges with other workers that `end` waits for.
std::vector<Operation> CollectivesBefore(const Operation& end) {
  std::vector<Operation> collectives;
  std::set<Node*> seen;
  std::vector<Node*> open = {&end.node()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->op().collective) collectives.emplace_back(node);
    for (const Output& input : node->inputs()) open.push_back(&input.node());
    for (Node* before : node->control_inputs()) open.push_back(before);
  }
  return collectives;
}

}  // namespace

void TrainingRun::CheckServers() const {
  if (options_.mirrored.any()) {
    throw Error(Code::kInvalidArgument,
                "mirrored devices have their variables themselves, not on "
                "parameter servers");
  }
  if (workers_.in_leaves() &&
      (options_.servers.lead || options_.servers.backups)) {
    throw Error(Code::kInvalidArgument,
                "virtual workers do each step together: use --consistency "
                "sync without backup workers");
  }
  workers_.RequireSame(
      "use of parameter servers",
      fmt::format(
          "variables on {}, lead {}, backups {}, tables from {} bytes, others "
          "{}",
          fmt::join(options_.servers.devices, ", "),
          options_.servers.lead.value_or(-1),
          options_.servers.backups.value_or(-1), options_.servers.cut_from,
          options_.servers.dense_from.value_or(-1)));
  CheckBackups();
}

void TrainingRun::CheckBackups() const {
  if (!options_.servers.backups) return;
  const int64_t backups = *options_.servers.backups;
  if (backups < 0 || backups >= workers_.size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} backup workers of {}: wanted 0 or more, and "
                            "one at least that steps wait for",
                            backups, workers_.size()));
  }
  if (options_.servers.lead) {
    throw Error(Code::kInvalidArgument,
                "backup workers are for steps that workers do together: use "
                "--consistency sync");
  }
  if (options_.gradients_between != DType::kFloat32) {
    throw Error(Code::kUnimplemented,
                "with backup workers gradients are not rounded on their way "
                "(--compress-gradients)");
  }
}

SessionOptions TrainingRun::PlaceTraining() {
  const TrainingServers& servers = options_.servers;
  SessionOptions session = options_.session;
  if (options_.mirrored.any() && !options_.mirrored.variables_on_each) {
    session.devices = {"/cpu:0"};
  }
  if (options_.pipeline.any()) return PlaceStages(std::move(session));
  if (!servers.any()) return session;
  for (const Output& variable : graph_.Variables()) {
    if (!apart_ || backed_) break;
    const bool accumulated = IsAccumulatedGradient(variable.name());
    if (!accumulated && !IsLossScaleState(variable.name())) continue;
    // Each counts on a step being one worker's.
    throw Error(Code::kInvalidArgument,
                fmt::format("{} is for workers that do each step together: "
                            "use one worker, or --consistency sync",
                            accumulated ? "gradient accumulation"
                                        : "loss scaling (fp16)"));
  }
  for (const auto& node : graph_.nodes()) {
    if (!apart_ || !workers_.several() || !node->op().collective) continue;
    throw Error(
        Code::kUnimplemented,
        fmt::format("'{}' is for workers that do each step together: "
                    "use --consistency sync{} ({})",
                    node->name(), backed_ ? " without backup workers" : "",
                    node->location()));
  }
  std::vector<Output> decided;
  if (backed_) decided = {AdmittedWorkers(graph_), AdmittedWeight(graph_)};
  ThrowIfError(dist::PlaceOnServers(graph_, session.devices[0], servers.devices,
                                    {servers.cut_from, servers.dense_from},
                                    decided));
  // Nobody else would have what a server that ends takes along.
  const bool kept = servers.patience.count() > 0 && options_.log_dir.empty();
  if (!kept || !workers_.leads())
    tables_ = std::make_unique<ServedTables>(graph_);
  const Output counter = GlobalStep(graph_);
  const Output counted = dist::CountLast(train_, counter);
  if (apart_ && !backed_) {
    // The counter is read before it is written, unless that is asked for.
    const DeviceScope beside(graph_, counter.node().device());
    const NameScope names(graph_, "staleness");
    stale_ = counted - (counter + 1);
  }
  servers.AddTo(&session);
  if (apart_) session.collective = nullptr;
  return session;
}

// Where all do a step together on servers, rank 0 updates for all, and what it
// does that with it has of the others.
std::vector<Operation> TrainingRun::Targets() const {
  if (backed_) return {ContributionOf(graph_, workers_.rank())};
  return owns_variables() || apart_ ? std::vector<Operation>{train_}
                                    : CollectivesBefore(train_);
}

}  // namespace sluice
