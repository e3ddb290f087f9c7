// The steps of a training in progress.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "graph/session/cluster.h"
#include "models/train/run/backup_steps.h"
#include "models/train/run/batch_step.h"
#include "models/train/run/leaf_steps.h"
#include "models/train/run/scattered_variables.h"
#include "models/train/run/training_run.h"

namespace sluice {
namespace {

// Steps from one during which the input's stages are measured to the next: the
// clock is read for each element of each stage then.
constexpr int64_t kStepsToMeasureInput = 8;

Tensor WeightOf(const Example& share, int64_t workers) {
  Tensor weight(DType::kFloat32, {});
  *weight.data<float>() =
      static_cast<float>(static_cast<double>(RowsOf(share) * workers) /
                         static_cast<double>(WholeRowsOf(share)));
  return weight;
}

// Adds the seconds that fn takes, if it does not throw.
void Timed(double* seconds, const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  *seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
}

// For how long steps have waited for tensors of servers. A worker has one part
// of a step, in order: on the host it computes nothing then, while an
// accelerator may be busy with what it was given before.
double SecondsForServers(const TrainingServers& servers,
                         const SessionOptions& session) {
  return servers.any() && !CopiesBatches(session) ? servers.cluster->seconds()
                                                  : 0;
}

}  // namespace

int64_t TrainingRun::total_steps() const {
  const int64_t total = context_.total_steps();
  const double ahead = StepsAhead();
  if (context_.steps > 0 || ahead == 0) return total;
  return std::max(steps_before_,
                  RunContext::WholeSteps(
                      context_.epochs * context_.steps_per_epoch - ahead));
}

double TrainingRun::StepsAhead() const {
  if (input_.examples_per_epoch() < 0) return 0;
  return static_cast<double>(examples_before_) /
             static_cast<double>(batch_size()) -
         static_cast<double>(steps_before_);
}

bool TrainingRun::Step(bool measure) {
  bool trained = false;
  const bool measure_input = step_ % kStepsToMeasureInput == 0;
  input_stages_->Measure(measure_input);
  if (measure_input) ++measured_inputs_;
  if (workers_.elastic()) position_before_ = batches_[0].SavePosition();
  Timed(&training_seconds_, [&] {
    Timed(&input_seconds_, [&] { trained = NextOfEach(batches_, &shares_); });
    if (trained && steps_at_once() == 1 && workers_.as_several()) {
      for (Example& share : shares_) {
        share.Set(kShareWeight, WeightOf(share, workers_.leaves()));
      }
    }
    if (trained && workers_.elastic()) {
      StepOrNothing(measure);
    } else if (trained) {
      TrainOnBatch(measure);
    }
  });
  if (!trained && !knows_total_steps()) {
    snapshot_is_old_ = true;  // of the input's position
    for (Iterator& batches : batches_) ThrowIfError(batches.NextEpoch());
  }
  return trained;
}

void TrainingRun::TrainOnBatch(bool measure) {
  const auto exchanged = [&] {
    return workers_.seconds() +
           SecondsForServers(options_.servers, session_->options());
  };
  const double before = exchanged();
  snapshot_is_old_ = true;
  together_ = !apart_ && !scattered_->any();
  // Until nothing has thrown.
  const bool sound = std::exchange(sound_, false);
  BatchStep::Pending plain;
  if (leaves_ != nullptr) {
    TrainOnLeaves(measure);
  } else if (backed_) {
    TrainWithBackups(measure);
  } else {
    plain = TrainPlain(measure);
  }
  sound_ = sound;
  if (measure && plain.valid()) MeasurePlain(plain.Wait());
  exchange_seconds_ += exchanged() - before;
}

// While an accelerator computes a step the host makes the next batch and
// starts on it, and only then waits.
BatchStep::Pending TrainingRun::TrainPlain(bool measure) {
  const int64_t last_step = step_;
  if (apart_) {
    session_->set_step(static_cast<uint64_t>(step_));
    // What the input ends with may have nothing for this worker.
    if (RowsOf(shares_[0]) == 0) {
      CountStep();
      return {};
    }
  }
  BatchStep::Pending started =
      (measure ? measuring_ : plain_)->Start(shares_[0]);
  BatchStep::Pending before = std::exchange(under_way_, started);
  CountStep();
  Collect(std::move(before), last_step);
  // What is on servers is not to be read before it is written.
  const bool served = options_.servers.any();
  if (measure || served || workers_.elastic() || !started.under_way()) {
    Collect(std::exchange(under_way_, {}), step_);
    committed_ = true;
  }
  if (served && !apart_) workers_.Barrier("updated");  // by rank 0, for all
  return started;
}

void TrainingRun::MeasurePlain(std::span<const Tensor> results) {
  std::vector<MetricsOverSet> metrics;
  const size_t rate = stale_.valid() ? 2 : 1;  // where it is
  metrics.emplace_back(model_.metrics)
      .Add(results.subspan(rate + 1), RowsOf(shares_[0]));
  Measure(results[rate].At(0), std::move(metrics),
          results.last(model_.summaries.size()));
}

void TrainingRun::BeginRounds(int64_t era) {
  if (!backed_) return;
  first_examples_ = examples_;
  backups_->Begin(era);
}

// A step that was over before this worker came to it has no metrics.
void TrainingRun::TrainWithBackups(bool measure) {
  const double waited = backups_->waited();
  const BackupSteps::Done done =
      backups_->Run(step_, measure ? *measuring_ : *plain_, shares_[0],
                    shares_[0][kShareWeight].At(0));
  exchange_seconds_ += backups_->waited() - waited;
  if (!done.values.empty()) own_examples_ += RowsOf(shares_[0]);
  ++step_;
  examples_ = first_examples_ + done.over.rows;
  dropped_ = done.over.dropped;
  NoteLoss(step_, done.over.loss);
  if (!measure) return;
  std::vector<MetricsOverSet> metrics;
  metrics.emplace_back(model_.metrics);
  std::span<const Tensor> summaries;
  if (!done.values.empty()) {
    metrics[0].Add(done.values.subspan(2), RowsOf(shares_[0]));
    summaries = done.values.last(model_.summaries.size());
  }
  Measure(done.over.rate, std::move(metrics), summaries);
  if (done.values.empty()) measurement_.metrics.clear();
}

void TrainingRun::CountStep() {
  step_ += steps_at_once();
  examples_ += WholeRowsOf(shares_[0]);
  for (const Example& share : shares_) own_examples_ += RowsOf(share);
}

WorkerTimes TrainingRun::times() const {
  const auto microseconds = [](double seconds) {
    return static_cast<int64_t>(seconds * 1e6);
  };
  return {own_examples_, microseconds(training_seconds_),
          microseconds(exchange_seconds_)};
}

void TrainingRun::TrainOnLeaves(bool measure) {
  std::vector<MetricsOverSet> metrics;
  std::vector<Tensor> summaries;
  for (size_t i = 0; i < shares_.size(); ++i) {
    metrics.emplace_back(model_.metrics);
  }
  const bool has_loss = workers_.stage() == workers_.stages() - 1;
  const auto on_leaf = [&](size_t i, std::span<const Tensor> values) {
    if (!has_loss) return;
    metrics[i].Add(values, RowsOf(shares_[i]));
    if (i > 0) return;
    const auto mine = values.last(model_.summaries.size());
    summaries.assign(mine.begin(), mine.end());
  };
  const auto idle = [&] {
    return leaves_->seconds().all - leaves_->seconds().busy;
  };
  const double before = idle();
  leaves_->Run(shares_, measure ? LeafSteps::OnLeaf(on_leaf) : nullptr);
  // As of servers.
  if (workers_.stages() > 1 && !CopiesBatches(session_->options())) {
    exchange_seconds_ += idle() - before;
  }
  CountStep();
  committed_ = true;
  if (!has_loss) metrics.clear();  // others have those
  struct {
    double loss = 0, rate = 0, scale = 0;
  } known;
  if (has_loss) known = {leaves_->loss(), leaves_->learning_rate()};
  if (workers_.stages() > 1) {
    if (has_loss) known.scale = ReadLossScale().value_or(0);
    workers_.TakeFromFirst("loss", &known, sizeof(known));
    if (!has_loss && known.scale > 0) known_loss_scale_ = known.scale;
  }
  NoteLoss(step_, known.loss);
  if (measure) Measure(known.rate, std::move(metrics), summaries);
}

void TrainingRun::Finish() {
  if (!under_way_.valid()) return;
  const bool sound = std::exchange(sound_, false);
  Timed(&training_seconds_,
        [&] { Collect(std::exchange(under_way_, {}), step_); });
  sound_ = sound;
}

StepInfo TrainingRun::InfoOfRuns() const {
  return leaves_ != nullptr ? leaves_->info() : plain_->info();
}

void TrainingRun::Collect(BatchStep::Pending ended, int64_t step) {
  if (!ended.valid()) return;
  const std::span<const Tensor> values = ended.Wait();
  NoteLoss(step, values[0].At(0));
  if (stale_.valid()) ++staleness_[values[1].IntAt(0)];
}

void TrainingRun::NoteLoss(int64_t step, double loss) {
  newest_loss_ = {step, loss};
  if (!std::isfinite(loss)) bad_loss_ = newest_loss_;
}

void TrainingRun::Measure(double learning_rate,
                          std::vector<MetricsOverSet> metrics,
                          std::span<const Tensor> summaries) {
  measurement_ = {step_, newest_loss_.value, learning_rate, loss_scale(), {},
                  {}};
  measurement_.metrics =
      apart_ ? metrics[0].Values()
             : workers_.Merged(model_.metrics, std::move(metrics)).Values();
  for (size_t i = 0; i < summaries.size(); ++i) {
    measurement_.summaries.emplace_back(model_.summaries[i].first,
                                        summaries[i].Clone());
  }
}

}  // namespace sluice
