#include "models/cli/fast_dev_run.h"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is POSIX's

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/caught.h"
#include "io/files/file.h"
#include "models/cli/console.h"
#include "models/train/export.h"
#include "models/train/hooks/hooks.h"
#include "models/train/run/first_batches.h"
#include "models/train/run/training_length.h"
#include "models/train/trainer.h"
#include "models/train/workers/workers.h"

namespace sluice {
namespace {

// A new folder that is removed with the object.
class ThrowawayFolder {
 public:
  ThrowawayFolder() {
    std::error_code error;
    const auto parent = std::filesystem::temp_directory_path(error);
    path_ = (parent / "sluice-dev-run-XXXXXX").string();
    if (!error && ::mkdtemp(path_.data()) == nullptr) {
      error = {errno, std::generic_category()};
    }
    if (error) {
      throw Error(Code::kUnavailable,
                  fmt::format("no temporary folder '{}' can be made (TMPDIR "
                              "says where): {}",
                              path_, error.message()));
    }
  }
  ThrowawayFolder(const ThrowawayFolder&) = delete;
  ThrowawayFolder& operator=(const ThrowawayFolder&) = delete;
  ~ThrowawayFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const {
    return JoinPath(path_, name);
  }

 private:
  std::string path_;
};

// Tensors of new memory.
Example Copy(const Example& example) {
  Example copy;
  for (const auto& [name, tensor] : example) copy.Set(name, tensor.Clone());
  return copy;
}

// Whether rounding may be all that two predictions differ by. Each may round
// elsewhere, as normalisation is folded into the weights of a frozen model;
// 16-bit numbers keep 8 bits. Of integers, such as the most probable class, few
// may then be others.
bool Agree(const Tensor& a, const Tensor& b, Precision precision) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const bool coarse = precision != Precision::kFloat32 || SizeOf(a.dtype()) < 4;
  double largest = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (std::isfinite(a.At(i))) largest = std::max(largest, std::abs(a.At(i)));
  }
  const double tolerance =
      IsFloating(a.dtype()) ? (coarse ? 0.05 : 1e-3) * largest : 0;
  int64_t others = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double x = a.At(i), y = b.At(i);
    const bool same = x == y || (std::isnan(x) && std::isnan(y)) ||
                      std::abs(x - y) <= tolerance;
    if (!same) ++others;
  }
  return others <= (IsFloating(a.dtype()) ? 0 : a.elements() / 20 + 1);
}

class DevRun {
 public:
  DevRun(const TrainerSpec& spec, const RunContext& run,
         const TrainingOptions& options,
         std::function<void(Trainer&)> add_hooks)
      : spec_(FirstBatches(spec, 1)),
        run_(run),
        options_(options),
        workers_(options.session.collective.get()),
        agreement_(workers_, options.stop),
        add_hooks_(std::move(add_hooks)) {
    options_.log_dir = folder_ / "log";
    options_.restart = false;
    options_.checkpoint = {};
    options_.save_every = {.steps = 0, .seconds = 0};
    options_.evaluate_every = 0;  // at the end
    options_.log_every = 1;
    // An evaluation comes with every training, so that after one it is known.
    spec_.model = [this, model = spec_.model](Scope& scope, const Features& in,
                                              const RunContext& context) {
      ModelSpec built = model(scope, in, context);
      if (!context.training()) has_exports_ = !built.exports.empty();
      return built;
    };
  }
  DevRun(const DevRun&) = delete;
  DevRun& operator=(const DevRun&) = delete;

  // Returns why it ended early; empty: it did not.
  std::string Run() {
    Within(TrainingStage(), [this] { Settle(); });
    for (const Stage& stage : Stages()) {
      if (stage.of_exports && !has_exports_) {
        Note("the model has no exports to predict or to export");
        break;
      }
      RunStage(stage);
      // Where others wait while rank 0 does a stage by itself.
      if (std::string reason = agreement_.Reason(); !reason.empty()) {
        Note("ended early: " + reason);
        return reason;
      }
    }
    Note("all is well");
    return "";
  }

 private:
  struct Stage {
    std::string name;
    bool of_exports;  // for one process
    std::function<void()> run;
  };
  std::string TrainingStage() const {
    return fmt::format("{} training steps", steps_);
  }
  std::vector<Stage> Stages() {
    return {
        {TrainingStage(), false, [this] { TrainTo(steps_); }},
        {"resuming for one more step", false,
         [this] {
           // Checkpoints come before weights from now on. Whose path they have
           // is no news.
           options_.weights.clear();
           options_.reset.clear();
           options_.reporter = nullptr;
           TrainTo(steps_ + 1);
         }},
        {"evaluation", false,
         [this] { Trainer(spec_, run_, options_).Evaluate(); }},
        {"prediction", true, [this] { Predict(); }},
        {"export", true,
         [this] { Trainer(spec_, run_, options_).Export(folder_ / "export"); }},
        {"prediction of the exported model", true, [this] { Compare(); }},
    };
  }

  static void Note(const std::string& line) {
    console::Note("fast dev run: " + line);
  }

  static void Within(const std::string& stage,
                     const std::function<void()>& fn) {
    try {
      fn();
    } catch (...) {
      throw Error(CaughtStatus().WithContext("fast dev run: " + stage));
    }
  }

  void RunStage(const Stage& stage) const {
    if (stage.of_exports && !workers_.leads()) return;
    const auto begin = std::chrono::steady_clock::now();
    Within(stage.name, stage.run);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    Note(fmt::format("{}: {:.1f} s", stage.name, took.count()));
  }

  // A few steps are a number that is known: what needs the length of the whole
  // training would get through with them alone.
  void Settle() {
    RunContext asked = workers_.WithRank(run_);
    asked.mode = Mode::kTrain;
    ReckonLength(spec_, spec_.input(asked), /*steps_at_once=*/1, &asked);
    // So many that the variables change.
    steps_ = 2 * OptimizerFor(spec_, asked, options_).accumulates();
    run_.steps = steps_ + 1;
  }

  void TrainTo(int64_t step) {
    Trainer trainer(spec_, run_, options_);
    if (add_hooks_) add_hooks_(trainer);
    trainer.AddHook(std::make_unique<StopAtStep>(step));
    const TrainingResult result = trainer.Train();
    if (!result.interrupted.empty()) return;
    if (result.steps < step) {
      throw Error(Code::kFailedPrecondition,
                  fmt::format("wanted {} steps: {}", step, result.stop_reason));
    }
    if (result.checkpoint.empty() && workers_.leads()) {
      throw Error(Code::kFailedPrecondition, "no checkpoint was saved");
    }
  }

  void Predict() {
    Trainer(spec_, run_, options_)
        .Predict([&](const Example& batch, const Example& exports) {
          batch_ = Copy(batch);
          predicted_ = Copy(exports);
          return false;
        });
  }

  void Compare() {
    const auto model = LoadExported(folder_ / "export", options_.session);
    const Example exported = model->Predict(batch_);
    for (const auto& [name, tensor] : predicted_) {
      if (Agree(tensor, exported[name], options_.session.precision)) continue;
      throw Error(Code::kInternal,
                  fmt::format("'{}' is {}, but {} before it was exported", name,
                              exported[name].ToString(), tensor.ToString()));
    }
  }

  const ThrowawayFolder folder_;
  TrainerSpec spec_;
  RunContext run_;
  TrainingOptions options_;
  const Workers workers_;
  const Agreement agreement_;
  int64_t steps_ = 2;  // of two updates
  std::function<void(Trainer&)> add_hooks_;
  bool has_exports_ = false;
  Example batch_, predicted_;  // of the saved model
};

}  // namespace

std::string FastDevRun(const TrainerSpec& spec, const RunContext& run,
                       const TrainingOptions& options,
                       const std::function<void(Trainer&)>& add_hooks) {
  return DevRun(spec, run, options, add_hooks).Run();
}

}  // namespace sluice
