#include "models/train/hooks/hooks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "engine/ceil_div.h"
#include "engine/runtime/finite_check.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/op.h"
#include "graph/session/find_non_finite.h"
#include "io/files/file.h"
#include "models/optim/loss_scale.h"
#include "models/train/run/leaf_steps.h"
#include "models/train/values/hook_state.h"
#include "models/train/workers/rank_traces.h"

namespace sluice {
namespace {

constexpr char kReceived[] = "RecvWait";  // from another stage

// Whether other workers' tensors are in its result.
bool Meets(const std::string& op) {
  const OpDef* const def = OpTable::Global().Find(op);
  return def != nullptr && def->collective;
}

}  // namespace

void SaveHooks(const std::vector<const Hook*>& hooks, TrainingState* state) {
  for (const Hook* hook : hooks) {
    const std::string name = hook->StateName();
    if (name.empty() || state->extra.contains(HookStateKey(name))) continue;
    state->extra[HookStateKey(name)] = hook->SaveState();
  }
}

void BeginTogether(const std::vector<Hook*>& hooks, TrainingRun& run) {
  const Workers& workers = run.workers();
  if (!workers.several()) return;
  run.HandOutParts();
  run.GatherSnapshot();
  run.RenewSnapshot();
  Checkpoint checkpoint;
  if (run.owns_variables()) checkpoint = *run.snapshot();
  // They are on the servers.
  if (run.options().servers.any()) checkpoint.tensors.clear();
  SaveHooks({hooks.begin(), hooks.end()}, &checkpoint.state);
  if (run.evaluated()) checkpoint.state.metric = 0;  // whatever it was
  run.TakeFromFirst(&checkpoint);
  if (workers.leads()) return;
  const std::string source = workers.Name(0);
  run.Restore(checkpoint, checkpoint.state.step > 0 ? source : "");
  RestoreHooks(hooks, checkpoint.state, source);
}

void KeepStates(const std::vector<const Hook*>& hooks, TrainingRun& run) {
  const std::shared_ptr<const Checkpoint> snapshot = run.snapshot();
  if (snapshot == nullptr || snapshot->state.step != run.step()) return;
  TrainingState states;
  SaveHooks(hooks, &states);
  run.AddToSnapshot(states.extra);
}

void RestoreHooks(const std::vector<Hook*>& hooks, const TrainingState& state,
                  const std::string& source) {
  for (Hook* hook : hooks) {
    const std::string name = hook->StateName();
    const auto saved = state.extra.find(HookStateKey(name));
    if (name.empty() || saved == state.extra.end()) continue;
    try {
      hook->RestoreState(saved->second);
    } catch (const Error& error) {
      throw Error(Code::kDataLoss,
                  fmt::format("'{}': the state of {} cannot be read: {}",
                              source, name, error.what()));
    }
  }
}

double JudgedBy(const TrainerSpec& spec, const Evaluation& evaluation) {
  const bool has_metric = evaluation.values.size() > 1;
  const double value = evaluation.values[has_metric ? 1 : 0].second;
  return has_metric && spec.higher_is_better ? value : -value;
}

void StopAtStep::AfterStep(TrainingRun& run) {
  if (run.step() >= step_) run.Stop(fmt::format("step {} is reached", step_));
}

void EarlyStopping::AfterEvaluation(TrainingRun& run,
                                    const Evaluation& evaluation) {
  if (!evaluation.due) return;
  // A training that is taken up where it had ended evaluates again.
  if (evaluation.step <= judged_step_) return;
  judged_step_ = evaluation.step;
  const double value = JudgedBy(run.spec(), evaluation);
  // NaN is not better than anything, and anything is better than NaN.
  if (!std::isnan(value) && (!best_ || value > *best_ + min_change_)) {
    best_ = value;
    waited_ = 0;
  } else {
    ++waited_;
  }
  StopWhenDue(run);
}

void EarlyStopping::StopWhenDue(TrainingRun& run) const {
  if (waited_ < patience_) return;
  run.Stop(fmt::format("no better for {} evaluation{}", waited_,
                       waited_ == 1 ? "" : "s"));
}

std::string EarlyStopping::StateName() const {
  return kEarlyStoppingState;
}

std::string EarlyStopping::SaveState() const {
  Json state;
  if (best_) state["best"] = BestAsJson(*best_);
  state["ended"] = waited_ >= patience_;
  state["step"] = judged_step_;
  state["waited"] = waited_;
  return state.Text();
}

void EarlyStopping::RestoreState(const std::string& state) {
  const JsonObject json = JsonObject::Parse(state).ValueOrThrow();
  judged_step_ = json.Int("step").ValueOrThrow();
  waited_ = json.Int("waited").ValueOrThrow();
  best_ = BestIn(json);
}

// --- NanStop -----------------------------------------------------------------

namespace {

// Of all workers' first bad nodes the one of the earliest step. `step` 0: this
// one found none. What `came` from other workers' tensors counts only where no
// worker computed such a value itself. It was on `device`, where a worker that
// is alone has several.
std::optional<std::string> FirstOf(const Workers& workers, int64_t step,
                                   bool came, const std::string& node,
                                   const std::string& device) {
  const int64_t mine = 2 * step + (came ? 1 : 0);
  const std::vector<int64_t> found = workers.GatherEach("bad step", mine);
  const std::vector<std::string> nodes = workers.Gather("bad node", node);
  int first = -1;
  for (int i = 0; i < workers.size(); ++i) {
    // Of stages the first, where the others' come from.
    const int rank =
        i - i % workers.stages() + workers.FirstWith(i % workers.stages());
    if (found[rank] > 0 && (first < 0 || found[rank] < found[first])) {
      first = rank;
    }
  }
  if (first < 0) return std::nullopt;
  const std::string where = workers.several() ? workers.Name(first) : device;
  return fmt::format("'{}'{}{} in step {}", nodes[first],
                     where.empty() ? "" : " on ", where, found[first] / 2);
}

}  // namespace

void NanStop::Begin(TrainingRun& run) {
  run.GatherSnapshot();
  run.RenewSnapshot();
}

void NanStop::AfterStep(TrainingRun& run) {
  const bool due = run.Passes(run.step(), interval_);
  if (due) run.Finish();  // a snapshot must be of a time when all was well
  Check(run);
  // One that is being saved is kept: its memory is all there is for it.
  if (due && std::isfinite(run.newest_loss().value) && !run.snapshot_held()) {
    if (run.scatters_variables()) return run.AskToMeet();
    run.RenewSnapshot();
  }
}

void NanStop::AtMeeting(TrainingRun& run) {
  if (!run.scatters_variables()) return;
  run.Finish();
  Check(run);
  if (std::isfinite(run.newest_loss().value)) run.GatherSnapshot();
}

void NanStop::AfterEvaluation(TrainingRun& run, const Evaluation&) {
  run.Finish();
  Check(run);
  run.GatherSnapshot();
}

void NanStop::End(TrainingRun& run) {
  run.Finish();
  Check(run);
  run.GatherSnapshot();
}

void NanStop::Check(TrainingRun& run) {
  const auto bad_loss = run.TakeBadLoss();
  if (!bad_loss) return;
  // The step changed nothing; with a smaller scale the next may be finite.
  if (run.loss_scale().value_or(0) > kLeastLossScale) return;
  run.MarkDiverged();
  const bool again = !run.options().servers.any();
  constexpr char kFailed[] = "running the steps again failed";
  std::string cause =
      again ? "running the steps again gave finite values"
            : "steps on parameter servers are not run again to find out why";
  try {
    if (const auto bad = again ? FirstBad(run) : std::nullopt) {
      cause = "the first value that is not finite came from " + *bad;
    }
  } catch (const Error& error) {
    // The others have it from this one, or it is one of theirs.
    if (run.workers().several()) {
      throw Error(error.status().WithContext(
          fmt::format("step {}: the loss is {}; {}", bad_loss->step,
                      bad_loss->value, kFailed)));
    }
    cause = fmt::format("{}: {}", kFailed, error.what());
  }
  throw Error(
      Code::kOutOfRange,
      fmt::format("step {}: the loss is {}; {}. Lower the learning rate, clip "
                  "the gradients or check the input",
                  bad_loss->step, bad_loss->value, cause));
}

std::optional<std::string> NanStop::FirstBad(TrainingRun& run) {
  const int64_t failed = run.step();
  // Each worker's may be of another step.
  Checkpoint snapshot = *run.snapshot();
  run.TakeFromFirst(&snapshot);
  run.Restore(snapshot, "snapshot");
  for (const NamedTensor& variable : snapshot.tensors) {
    // Who has a part does not know whether the others' are finite.
    if (run.IsScattered(variable.name)) continue;
    if (!AllFinite(variable.tensor)) {
      return fmt::format("'{}' in step {}", variable.name, run.step());
    }
  }
  // One that ends its step leaves the other workers waiting.
  const Workers& workers = run.workers();
  const auto sessions = run.step_sessions();
  std::deque<FiniteCheck> checks;  // parallel
  for (size_t i = 0; i < sessions.size(); ++i) {
    checks.emplace_back(/*ends_step=*/!workers.several());
  }
  const auto came = [&](size_t i) {
    if (checks[i].op() == kReceived) return workers.several();
    return run.leaves() != nullptr ? !run.leaves()->ByLeaf(checks[i].node())
                                   : Meets(checks[i].op());
  };
  // Of several devices' the first, by their order.
  const auto first = [&] {
    size_t found = 0;
    while (found < checks.size() && checks[found].node().empty()) ++found;
    return found;
  };
  int64_t bad_step = 0;
  bool ended = false;
  std::function<void()> again = [&] {
    // Between epochs there is none to look at.
    while (run.step() < failed &&
           (run.Step(/*measure=*/false) || run.between_epochs())) {
      const size_t found = first();
      if (found == checks.size() || bad_step > 0) continue;
      // A share of no examples has a loss of its own that counts for nothing.
      // Leaves without any compute nothing, and the batch is that of the first.
      const bool empty = run.leaves() == nullptr && RowsOf(run.batch()) == 0;
      if (empty && !came(found)) {
        checks[found].Forget();
      } else {
        bad_step = run.step();
      }
    }
  };
  for (size_t i = 0; i < sessions.size(); ++i) {
    again = [&, i, within = again] {
      ended = EndedBy(checks[i], *sessions[i].first, within) || ended;
    };
  }
  again();
  if (ended) bad_step = run.step() + 1;
  const size_t found = first();
  if (found == checks.size()) return FirstOf(workers, 0, false, "", "");
  const bool of_sums = came(found);
  return FirstOf(workers, bad_step, of_sums, checks[found].node(),
                 sessions.size() > 1 && !of_sums ? sessions[found].second : "");
}

// --- Profile -----------------------------------------------------------------

namespace {

// "log/trace-20-30-from-26.json"
std::string FromStep(const std::string& path, int64_t step) {
  const size_t name = path.rfind('/') + 1;  // 0 without one
  const size_t dot = path.rfind('.');
  const size_t end = dot == std::string::npos || dot < name ? path.size() : dot;
  return fmt::format("{}-from-{}{}", path.substr(0, end), step,
                     path.substr(end));
}

}  // namespace

void Profile::StartWhenDue(TrainingRun& run) {
  if (trace_ || saved_ || run.step() + 1 < first_) return;
  trace_ = std::make_unique<ChromeTrace>();
  for (const auto& [session, device] : run.step_sessions()) {
    session->SetObserver(trace_.get());
  }
  if (run.workers().leads()) TraceServers(run.options().servers);
  run.input_stages().Trace(true);
}

// What a training that begins again had noted is of a session that is gone. A
// worker that has come in meanwhile traces nothing that the others have.
void Profile::Begin(TrainingRun& run) {
  trace_.reset();
  // The same command again goes on from its end: what it wrote stays.
  if (!std::exchange(begun_, true)) {
    if (run.step() >= last_) {
      run.options().Note(
          fmt::format("no trace is written: the training goes on from step {}, "
                      "behind step {}",
                      run.step(), last_));
      saved_ = true;
    } else if (run.step() >= first_) {
      path_ = FromStep(path_, run.step() + 1);
    }
  }
  uint8_t saved = saved_ ? 1 : 0;
  run.workers().TakeFromFirst("whether there is a trace", &saved,
                              sizeof(saved));
  saved_ = saved != 0;
  StartWhenDue(run);
}

void Profile::AfterStep(TrainingRun& run) {
  if (trace_ && run.step() >= last_) End(run);
  StartWhenDue(run);
}

void Profile::End(TrainingRun& run) {
  if (!trace_) {
    if (saved_) return;
    run.options().Note(fmt::format(
        "no trace was written: training ended at step {}, before step {}",
        run.step(), first_));
    return;
  }
  for (const auto& [session, device] : run.step_sessions()) {
    session->SetObserver(nullptr);
  }
  run.input_stages().Trace(false);
  for (const StageSpan& span : run.input_stages().TakeSpans()) {
    const std::string row =
        span.thread == 0 ? span.stage
                         : fmt::format("{} ({})", span.stage, span.thread + 1);
    trace_->AddSpan("input", row, span.stage, span.begin_ns, span.end_ns);
  }
  std::string trace = trace_->ToJson(), what;
  const TrainingServers& servers = run.options().servers;
  std::vector<std::string_view> others;
  if (run.workers().several()) others.emplace_back("the other ranks");
  if (servers.any()) others.emplace_back("the parameter servers");
  if (!others.empty()) {
    int64_t within = 0;
    trace = GatheredTrace(run.workers(), servers, trace, &within);
    what =
        fmt::format(" by rank 0, and of {} (clocks within {} us)",
                    fmt::join(others, " and "), CeilDiv(within, int64_t{1000}));
  }
  if (run.workers().leads()) {
    ThrowIfError(FileSystem::Default()
                     .WriteAtomically(path_, trace)
                     .WithContext("--profile"));
  }
  run.options().Note(fmt::format(
      "wrote a trace of {} kernel runs{} to {}; open it in ui.perfetto.dev",
      trace_->events(), what, path_));
  trace_.reset();
  saved_ = true;
}

}  // namespace sluice
