#include "models/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "dist/servers/server.h"
#include "graph/session/cluster.h"
#include "graph/text/text.h"
#include "io/files/path_kind.h"
#include "io/files/without_query.h"
#include "io/remote/register.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/keep_bad_examples.h"
#include "models/train/hooks/save_checkpoints.h"
#include "models/train/hooks/summaries.h"
#include "models/train/run/evaluation_times.h"
#include "models/train/step_loop.h"

namespace sluice {
namespace {

CheckpointManager OpenManager(const TrainingOptions& options) {
  CheckpointManager::Options manager;
  manager.keep = options.keep_checkpoints;
  manager.waits = [reporter = options.reporter](std::string_view line) {
    if (reporter != nullptr) reporter->Note(line);
  };
  return CheckpointManager::Open(options.log_dir, manager).ValueOrThrow();
}

// Where who had the folder is gone from an elastic job, and may not know it
// yet: its host is cut off. A file system of several hosts takes its lock away
// when it has noticed (NFS after 90 s).
CheckpointManager OpenManagerInTime(const TrainingOptions& options) {
  constexpr std::chrono::minutes kLongest(2);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  for (bool told = false;; told = true) {
    try {
      return OpenManager(options);
    } catch (const Error& error) {
      if (error.code() != Code::kFailedPrecondition ||
          !options.StopReason().empty() ||
          std::chrono::steady_clock::now() >= end) {
        throw;
      }
      if (!told) {
        options.Note(fmt::format("{}; it is waited for", error.what()));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Where it is known before: else the step loop comes to it.
void NoteWhatWillBeLeftOver(const TrainingRun& run) {
  if (!run.has_last_step() || run.done()) return;
  NoteLeftOver(run, "will be", run.total_steps());
}

void NoteFewExamples(const TrainingRun& run) {
  const double batches = run.context().steps_per_epoch;
  if (!run.knows_total_steps() || batches >= 1) return;
  run.options().Note(fmt::format(
      "there are {:g} examples to train on, fewer than the batch size, {}",
      batches * static_cast<double>(run.batch_size()), run.batch_size()));
}

// What lies beside the checkpoints of a training and is of it alone, what going
// on needs most first: what the program was told (models/cli/run_record.h),
// scalars, the step, events.
std::vector<std::string> FilesBeside(const std::string& log_dir) {
  std::vector<std::string> files = {"run.json", "scalars.csv", "step.graph"};
  for (const char* folder : {"train", "eval", "evaluator"}) {
    const std::string path = JoinPath(log_dir, folder);
    if (!IsFolder(path).ValueOrThrow()) continue;
    // Folders of these names may hold anything, such as pictures.
    for (const std::string& name :
         FileSystem::Default().List(path).ValueOrThrow()) {
      if (name.starts_with("events.out.tfevents")) {
        files.push_back(JoinPath(folder, name));
      }
    }
  }
  return files;
}

// Of all that servers have been asked by: those that stayed, when workers were
// started again, may have it from a rank 0 whose clock was ahead.
int64_t NewestEra(Cluster& cluster) {
  const std::string first = dist::ServerName(0);  // who is asked for the pace
  const int64_t era =
      dist::AskNumber(cluster, first, dist::kAskEra).ValueOrThrow();
  if (era >= 0 && era < std::numeric_limits<int64_t>::max()) return era;
  throw Error(Code::kDataLoss,
              fmt::format("{} says {} for its newest era", first, era));
}

// Without a folder: what was evaluated, and comes into hooks' states, is not to
// be lost. It is the last hook, so that none can fail once that is kept.
class KeepEvaluated : public Hook {
 public:
  void AfterEvaluation(TrainingRun& run, const Evaluation&) override {
    run.RenewSnapshot();
  }
};

}  // namespace

Trainer::Trainer(TrainerSpec spec, RunContext run, TrainingOptions options)
    : spec_(std::move(spec)),
      run_(std::move(run)),
      options_(std::move(options)),
      log_dir_(options_.log_dir),
      weights_(options_.weights),
      reporter_(options_.reporter),
      era_(std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
               .count()) {
  RegisterRemoteFiles();
  if (!spec_.input || !spec_.model) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: a TrainerSpec needs an input and a model "
                            "function",
                            spec_.name));
  }
  options_.servers.reporter = reporter_;
  if (run_.bad_examples != nullptr && run_.bad_examples->limit() > 0) {
    AddHook(std::make_unique<KeepBadExamples>(run_.bad_examples, spec_, run_));
  }
  TakePlace();
}

void Trainer::TakePlace() {
  const bool leads = Workers(options_.session.collective.get()).leads();
  options_.log_dir = leads ? log_dir_ : "";
  options_.weights = leads ? weights_ : "";
  options_.reporter = leads ? reporter_ : nullptr;
}

void Trainer::AddHook(std::unique_ptr<Hook> hook) {
  if (hook == nullptr) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: AddHook got no hook", spec_.name));
  }
  hooks_.push_back(std::move(hook));
}

void Trainer::Begin(TrainingRun& run,
                    const std::optional<CheckpointManager>& saved) {
  if (saved && !saved->warning().empty()) options_.Note(saved->warning());
  if (kept_ != nullptr) {
    run.Restore(*kept_, kKeptInMemory);
    RestoreHooks(AddedHooks(), kept_->state, kKeptInMemory);
    options_.Note(
        fmt::format("going on from step {}, kept in memory", run.step()));
    return;
  }
  if (saved && !options_.restart) {
    const auto restored = saved
                              ->RestoreNewest([&](const std::string& name) {
                                return run.IsTable(name);
                              })
                              .ValueOrThrow();
    if (restored) {
      for (const std::string& warning : restored->warnings) {
        options_.Note(warning);
      }
      run.Restore(restored->checkpoint, restored->path);
      RestoreHooks(AddedHooks(), restored->checkpoint.state, restored->path);
      if (again_) {
        return options_.Note(fmt::format("going on from step {} of {}",
                                         run.step(), restored->path));
      }
      options_.Note(
          fmt::format("resuming from step {} of {} (--restart begins anew)",
                      run.step(), restored->path));
      const std::string& before = restored->checkpoint.state.schedule;
      if (before != run.learning_rate().description()) {
        options_.Note(fmt::format("the learning rate was {}, now it is {}",
                                  before, run.learning_rate().description()));
      }
      if (run.done()) {
        options_.Note(fmt::format(
            "nothing is left to do: all {} were done "
            "before",
            run.knows_total_steps()
                ? fmt::format("{} steps", run.total_steps())
                : fmt::format("{:g} epochs", run.context().epochs)));
      }
      if (!options_.weights.empty()) {
        options_.Note(fmt::format("{} is not used: a checkpoint comes first",
                                  WithoutQuery(options_.weights)));
      }
      return;
    }
  }
  if (again_) options_.Note("going on from the beginning: nothing was saved");
  if (!options_.weights.empty()) {
    const LoadedWeights loaded = run.LoadWeights();
    std::string how;
    if (loaded.converted > 0) {
      how += fmt::format(", {} of them converted", loaded.converted);
    }
    if (!loaded.reset.empty()) {
      how += fmt::format(", but for {}", fmt::join(loaded.reset, ", "));
    }
    options_.Note(fmt::format("beginning with the {} tensors of {}{}",
                              loaded.tensors, WithoutQuery(options_.weights),
                              how));
  } else if (!options_.freeze.empty()) {
    options_.Note(
        "what is frozen stays at its random first values: there are no weights "
        "to begin with");
  }
}

std::vector<Hook*> Trainer::AddedHooks() const {
  std::vector<Hook*> added;
  for (const auto& hook : hooks_) added.push_back(hook.get());
  return added;
}

TrainingResult Trainer::Train() {
  const auto begin = std::chrono::steady_clock::now();
  again_ = false;
  kept_.reset();
  examples_before_ = 0;
  seconds_before_ = 0;
  while (true) {
    try {
      TrainingResult result = TrainOnce();
      result.seconds = std::chrono::duration<double>(
                           std::chrono::steady_clock::now() - begin)
                           .count();
      return result;
    } catch (const Error& error) {
      if (!OthersAreGone(error)) {
        if (!ServerIsGone()) {
          SaveKept();
          throw;
        }
        const Status lost = options_.servers.cluster->Lost();
        options_.Note(fmt::format("{}; it is waited for",
                                  lost.ok() ? error.what() : lost.message()));
      }
    } catch (...) {
      SaveKept();
      throw;
    }
    AwaitOthers();
    again_ = true;
  }
}

TrainingResult Trainer::TrainOnce() {
  ++era_;
  RunContext context = run_;
  context.mode = Mode::kTrain;

  std::optional<CheckpointManager> saved;
  if (!options_.log_dir.empty()) {
    const bool others =
        again_ && Workers(options_.session.collective.get()).elastic();
    saved = others ? OpenManagerInTime(options_) : OpenManager(options_);
  }
  TrainingRun run(spec_, context, options_);
  Begin(run, saved);
  CountEarlierEvaluations(run);
  BeginTogether(AddedHooks(), run);
  NoteWhatWillBeLeftOver(run);
  NoteEvaluations(run);
  NoteFewExamples(run);
  if (saved) BeginFolder(run, *saved);
  if (run.workers().elastic()) AwaitBegun(run);

  NanStop nan_stop(options_.log_every);
  std::optional<Summaries> summaries;
  std::optional<SaveCheckpoints> save;
  std::vector<Hook*> hooks = {&nan_stop};
  if (saved) {
    hooks.push_back(&summaries.emplace(options_.log_dir, options_.log_every));
  }
  for (Hook* hook : AddedHooks()) hooks.push_back(hook);
  KeepEvaluated keep;
  if (saved) {
    hooks.push_back(
        &save.emplace(*std::move(saved),
                      std::vector<const Hook*>(hooks.begin(), hooks.end())));
  } else if (options_.servers.patience.count() > 0) {
    hooks.push_back(&keep);
  }

  TrainingResult result;
  RunToEnd(run, hooks, &result);
  result.steps = run.step();
  result.dropped = run.dropped();
  result.stop_reason = run.stop_reason();
  if (save) result.checkpoint = save->last_path();
  const double seconds = seconds_before_ + run.training_seconds();
  if (seconds > 0) {
    result.examples_per_second =
        static_cast<double>(examples_before_ + run.examples()) / seconds;
  }
  return result;
}

void Trainer::BeginFolder(const TrainingRun& run, CheckpointManager& saved) {
  if (options_.restart) {  // now that what was asked for can be
    const std::string moved =
        saved.SetAside(FilesBeside(options_.log_dir)).ValueOrThrow();
    if (!moved.empty()) {
      options_.Note("the earlier training is now in " + moved);
    }
    options_.restart = false;  // what begins again is of this one
  }
  // For `sluice graph`: what is done, fused and kept in memory.
  ThrowIfError(FileSystem::Default().WriteAtomically(
      JoinPath(options_.log_dir, "step.graph"), PrintGraph(*run.StepGraph())));
}

void Trainer::AwaitBegun(TrainingRun& run) {
  try {
    run.workers().Barrier("begun");
  } catch (const Error& error) {
    // Who has handed this out may be gone.
    if (OthersAreGone(error)) Keep(run, {});
    throw;
  }
  options_.restart = false;  // whoever becomes rank 0
}

void Trainer::RunToEnd(TrainingRun& run, const std::vector<Hook*>& hooks,
                       TrainingResult* result) {
  bool ended = false;  // hooks have been told
  try {
    RunSteps(run, hooks, result);
    ended = true;
    // Not before rank 0 has saved: who leaves may end the job.
    run.workers().Barrier("trained");
  } catch (const Error& error) {
    for (Hook* hook : hooks) {
      if (!ended) hook->OnError(run);
    }
    // While what others' threads of this worker may use is there. Where another
    // server has told of one that is gone, this worker's own link to it may end
    // with the run alone: Train asks again.
    const bool others = OthersAreGone(error);
    const TrainingServers& servers = options_.servers;
    const bool may_begin_again =
        !run.diverged() &&
        (others ? run.sound() : servers.any() && servers.patience.count() > 0);
    if (may_begin_again) Keep(run, *result);
    if (may_begin_again && (others || ServerIsGone())) throw;
    if (error.code() != Code::kUnavailable &&
        error.code() != Code::kDeadlineExceeded) {
      throw;
    }
    throw WithLastCheckpoint(error);
  } catch (...) {
    for (Hook* hook : hooks) hook->OnError(run);
    throw;
  }
}

void Trainer::RunSteps(TrainingRun& run, const std::vector<Hook*>& hooks,
                       TrainingResult* result) {
  const Workers& workers = run.workers();
  if (run.apart() && workers.leads()) {
    era_ = std::max(era_, NewestEra(*options_.servers.cluster) + 1);
  }
  int64_t era = era_;
  if (run.apart()) workers.TakeFromFirst("era", &era, sizeof(era));
  const auto regroup = [this] { Regroup(); };
  StepLoop(run, hooks, era, regroup, result).Run();
}

}  // namespace sluice
