// A parameter server that ends within an evaluation, between those who judge it
// and what keeps it, and comes back: they judge it anew.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graph/session/cluster.h"
#include "models/optim/schedule.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckVariables;
using testing::Contains;
using testing::JobServers;
using testing::kSync;
using testing::PlainSpec;
using testing::RecordingReporter;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;
using testing::TrainWith;

// Ends the server in the evaluation after a step, before the hooks behind this
// one judge it, and has another come when the run has failed.
class EndsServer : public Hook {
 public:
  EndsServer(int64_t step, JobServers& job) : step_(step), job_(job) {}
  void AfterEvaluation(TrainingRun& run,
                       const Evaluation& evaluation) override {
    if (evaluation.step != step_ || ended_ || !run.workers().leads()) return;
    ended_ = true;
    job_.End(0);
    while (run.options().servers.cluster->Lost().ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void OnError(TrainingRun&) noexcept override {
    if (ended_ && !returned_) job_.Return(0);
    returned_ = ended_;
  }

 private:
  const int64_t step_;
  JobServers& job_;
  bool ended_ = false, returned_ = false;
};

struct Judge {
  std::function<std::unique_ptr<Hook>()> make;
  // Where no evaluation is better than the first: of five after 10, 20, 30, 40
  // and 50 steps.
  int64_t steps;
  double rate_factor;
};

TrainerSpec NeverBetter() {
  TrainerSpec spec = PlainSpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Plain(scope, in, run);
    model.metrics = {{"same", 0 * model.loss}};
    return model;
  };
  spec.optimizer = [](const RunContext&) {
    return optimizers::Momentum(schedules::Plateau(0.05), 0.9);
  };
  return spec;
}

// The server ends in the evaluation after step `ends`, if there is one.
std::vector<Trained> TrainJudged(const Judge& judge, int workers, int64_t ends,
                                 const std::string& log_dir,
                                 RecordingReporter* notes) {
  JobServers job(1, DeviceType::kCpu, /*may_return=*/true);
  Task task{.spec = [](int) { return NeverBetter(); }, .run = ToyRun(1)};
  task.run.batch_size = 5;
  task.may_join_again = true;
  task.tells_failure = true;
  task.options = [&](int rank) {
    TrainingOptions options{
        .log_dir = log_dir, .evaluate_every = 0.2, .log_every = 3};
    options.reporter = notes;
    options.servers = job.For(rank, kSync);
    options.servers.patience = std::chrono::seconds(20);
    return options;
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<EndsServer>(ends, job));
    trainer.AddHook(judge.make());
  };
  return TrainWith(workers, task);
}

TEST_CASE("those who judge have the states of what a training goes on from") {
  const Judge judges[] = {
      {[] {
         return std::make_unique<ReduceOnPlateau>(
             PlateauOptions{.patience = 0, .factor = 0.5});
       },
       50, 1.0 / 16},
      {[] { return std::make_unique<EarlyStopping>(1); }, 20, 1}};
  for (const Judge& judge : judges) {
    for (const auto& [workers, saves] :
         {std::pair(1, false), std::pair(1, true), std::pair(2, false)}) {
      CAPTURE(judge.steps);
      CAPTURE(workers);
      CAPTURE(saves);
      const TemporaryFolder folder;
      RecordingReporter none, notes;
      const Trained undisturbed = TrainJudged(judge, workers, -1, "", &none)[0];
      REQUIRE(undisturbed.error == "");
      CHECK(undisturbed.result.steps == judge.steps);
      CHECK(undisturbed.variables.at("learning_rate_factor").At(0) ==
            judge.rate_factor);
      const std::string log_dir = saves ? folder / "log" : "";
      const auto struck = TrainJudged(judge, workers, 20, log_dir, &notes);
      CAPTURE(notes.text());
      // A save that is slow keeps the snapshot that it writes.
      CHECK(Contains(notes.text(),
                     saves ? "going on from step 1" : "going on from step 18"));
      for (const Trained& each : struck) {
        CheckVariables(each, undisturbed);
        CHECK(each.result.steps == undisturbed.result.steps);
        CHECK(each.result.stop_reason == undisturbed.result.stop_reason);
        REQUIRE(each.result.evaluation.has_value());
        CHECK(each.result.evaluation->values ==
              undisturbed.result.evaluation->values);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
