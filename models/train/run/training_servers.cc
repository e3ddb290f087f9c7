// Where a training with parameter servers is computed, and by whom.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "dist/servers/additive_updates.h"
#include "dist/servers/placement.h"
#include "dist/servers/server.h"
#include "engine/cpu_features.h"
#include "graph/ops/elementwise.h"
#include "graph/traversal.h"
#include "models/optim/contributions.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/loss_scale.h"
#include "models/optim/reduce_gradients.h"
#include "models/train/run/served_tables.h"
#include "models/train/run/training_run.h"

namespace sluice {
namespace {

// The exchanges with other workers that `end` waits for, in the graph's order.
std::vector<Operation> CollectivesBefore(const Operation& end) {
  const auto needed = Needed({&end.node()});
  std::vector<Operation> collectives;
  for (const auto& node : end.node().graph().nodes()) {
    if (!node->op().collective || !needed.contains(node.get())) continue;
    collectives.emplace_back(node.get());
  }
  return collectives;
}

// Each worker of several does `ends` of its own; where these were of what an
// update wrote, each would write that on the servers while others read it.
void CheckWritesNothing(const std::vector<Operation>& ends) {
  std::vector<Operation> before;
  for (const Operation& end : ends) {
    ForEachDependency(end.node(),
                      [&](Node& node) { before.emplace_back(&node); });
  }
  RefuseWrites(before, "what workers exchange is of",
               "with variables on parameter servers");
}

// They update, and virtual workers have the bits of any other process.
void RequireSameIsa(const TrainingServers& servers) {
  for (size_t i = 0; i < servers.devices.size(); ++i) {
    const std::string name = dist::ServerName(static_cast<int>(i));
    const std::string isa =
        servers.cluster->Ask(name, std::string(dist::kAskIsa)).ValueOrThrow();
    if (isa == ChosenIsa()) continue;
    throw Error(Code::kFailedPrecondition,
                fmt::format("virtual workers have the same bits by one "
                            "instruction set alone (SLUICE_ISA): {} computes "
                            "with {}, this worker with {}",
                            name, isa, ChosenIsa()));
  }
}

}  // namespace

void TrainingRun::CheckServers() const {
  if (options_.mirrored.any()) {
    throw Error(Code::kInvalidArgument,
                "mirrored devices have their variables themselves, not on "
                "parameter servers");
  }
  // The servers' variables would be in it, an evaluation looks elsewhere.
  if (!options_.session.container.empty()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("variables on parameter servers are the job's: "
                            "they go into no container, got '{}' "
                            "(SessionOptions::container)",
                            options_.session.container));
  }
  if (workers_.in_leaves() &&
      (options_.servers.lead || options_.servers.backups)) {
    throw Error(Code::kInvalidArgument,
                "virtual workers do each step together: use --consistency "
                "sync without backup workers");
  }
  if (workers_.in_leaves()) RequireSameIsa(options_.servers);
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
    // The session has no collective then, and would count one worker.
    const bool of_several = node->op().collective || node->op().asks_seat;
    if (!apart_ || !workers_.several() || !of_several) continue;
    throw Error(
        Code::kUnimplemented,
        fmt::format("'{}' is for workers that do each step together: "
                    "use --consistency sync{} ({})",
                    node->name(), backed_ ? " without backup workers" : "",
                    node->location()));
  }
  if (backed_) {
    const Node& own = ContributionOf(graph_, workers_.rank()).node();
    const auto& puts = own.control_inputs();
    CheckWritesNothing(std::vector<Operation>(puts.begin(), puts.end()));
  } else if (!apart_ && workers_.several() && !workers_.in_leaves()) {
    CheckWritesNothing(CollectivesBefore(train_));
  }
  std::vector<Output> decided;
  if (backed_) decided = {AdmittedWorkers(graph_), AdmittedWeight(graph_)};
  ThrowIfError(dist::PlaceOnServers(graph_, session.devices[0], servers.devices,
                                    {servers.cut_from, servers.dense_from},
                                    decided));
  // Of contributions one worker writes the mean.
  if (apart_ && !backed_) dist::MakeUpdatesAdditive(train_);
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
