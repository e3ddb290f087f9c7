// Parameter servers that end in the middle of trainings, and come back without
// what they had: the trainings go on from what was kept, and lose nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graph/session/cluster.h"
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
using testing::kAnyLead;
using testing::kSync;
using testing::Lead;
using testing::PlainSpec;
using testing::RecordingReporter;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

constexpr int64_t kExamples = 120;

// Examples by number, each once in an epoch.
Dataset Numbered(const RunContext& run) {
  Tensor x(DType::kFloat32, {kExamples, 3});
  Tensor label(DType::kInt64, {kExamples});
  for (int64_t i = 0; i < kExamples; ++i) {
    label.data<int64_t>()[i] = i % 3;
    for (int64_t j = 0; j < 3; ++j) {
      x.data<float>()[3 * i + j] = static_cast<float>(i) / kExamples;
    }
  }
  Dataset all = datasets::FromTensors({{"x", x}, {"label", label}});
  if (run.training()) all = all.Shuffle(kExamples, run.seed).Repeat();
  return all.Batch(run.batch_size);
}

// What each worker has trained on, as far as it counts: what comes after the
// step that a training goes on from is forgotten.
class Account : public Hook {
 public:
  void Begin(TrainingRun& run) override {
    const std::lock_guard lock(mutex_);
    ++begun_;
    auto& mine = seen_[run.workers().rank()];
    mine.erase(mine.upper_bound(run.step()), mine.end());
  }
  void AfterStep(TrainingRun& run) override {
    const std::lock_guard lock(mutex_);
    std::vector<int64_t>& examples = seen_[run.workers().rank()][run.step()];
    CHECK(examples.empty());
    for (int64_t i = 0; i < RowsOf(run.batch()); ++i) {
      examples.push_back(std::lround(run.batch()["x"].At(3 * i) * kExamples));
    }
  }
  // By example: how often.
  std::map<int64_t, int> Seen() const {
    std::map<int64_t, int> all;
    for (const auto& [rank, steps] : seen_) {
      for (const auto& [step, examples] : steps) {
        for (const int64_t example : examples) ++all[example];
      }
    }
    return all;
  }
  int begun() const { return begun_; }

 private:
  std::mutex mutex_;
  int begun_ = 0;  // by all workers
  std::map<int, std::map<int64_t, std::vector<int64_t>>> seen_;
};

class Forward : public Hook {
 public:
  explicit Forward(Hook& to) : to_(to) {}
  void Begin(TrainingRun& run) override { to_.Begin(run); }
  void AfterStep(TrainingRun& run) override { to_.AfterStep(run); }

 private:
  Hook& to_;
};

// Ends servers at moments that a worker comes by, between steps and within
// evaluations, and has them return a little later.
class Reaper : public StopToken {
 public:
  struct End {
    int after = 0;  // questions since the one before
    int server = 0;
    std::chrono::milliseconds away{0};
  };
  Reaper(JobServers& job, std::vector<End> ends)
      : job_(job), ends_(std::move(ends)) {}
  ~Reaper() override {
    if (returns_.joinable()) returns_.join();
  }

  std::string Reason() const override {
    const std::lock_guard lock(mutex_);
    if (next_ == ends_.size() || ++asked_ < ends_[next_].after) return "";
    const End end = ends_[next_];
    if (returns_.joinable()) returns_.join();
    ++next_;
    asked_ = 0;
    job_.End(end.server);
    returns_ = std::thread([this, end] {
      std::this_thread::sleep_for(end.away);
      job_.Return(end.server);
    });
    return "";
  }
  bool done() const { return next_ == ends_.size(); }

 private:
  JobServers& job_;
  const std::vector<End> ends_;
  mutable std::mutex mutex_;
  mutable size_t next_ = 0;
  mutable int asked_ = 0;
  mutable std::thread returns_;
};

// A training by workers of which one at random comes by the reaper.
struct Plan {
  int servers = 1, workers = 1;
  Lead lead = kSync;
  std::optional<int64_t> backups = std::nullopt;
  std::string log_dir = {};
  double epochs = 2;
  bool table = false;  // the model has one, cut over the servers
  bool dense = false;  // other variables are, too
  int64_t virtual_workers = 0;
  std::vector<Reaper::End> ends = {};
};

// Of examples by number, a row of a table for each.
ModelSpec Tabled(Scope& scope, const Features& in, const RunContext&) {
  const Output number =
      Cast(Reshape(Slice(in["x"], {0, 0}, {-1, 1}), {-1}) * kExamples + 0.5,
           DType::kInt64);
  const Output x = layers::Embedding(scope / "table", number,
                                     {.size = kExamples + 9, .dimensions = 4});
  const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

TrainerSpec NumberedSpec(const TrainerSpec& like) {
  TrainerSpec spec = like;
  spec.input = Numbered;
  return spec;
}

std::vector<Trained> Train(const Plan& plan, std::mt19937& random,
                           Account* account) {
  JobServers job(plan.servers, DeviceType::kCpu,
                 /*may_return=*/!plan.ends.empty());
  const Reaper reaper(job, plan.ends);
  const int by = static_cast<int>(random() % plan.workers);
  Task task{.spec = [](int) { return NumberedSpec(PlainSpec()); },
            .run = ToyRun(plan.epochs)};
  if (plan.table) {
    task.spec = [](int) {
      TrainerSpec spec = NumberedSpec(PlainSpec());
      spec.model = Tabled;
      spec.optimizer = [](const RunContext&) {
        return optimizers::Adagrad(0.1, {.epsilon = 0.1});
      };
      return spec;
    };
  }
  task.run.batch_size = 5;
  task.may_join_again = true;
  task.tells_failure = true;
  task.options = [&](int rank) {
    TrainingOptions options{.log_dir = plan.log_dir,
                            .save_every = {.steps = 5},
                            .evaluate_every = 0.4,
                            .log_every = 3};
    options.servers = job.For(rank, plan.lead);
    options.servers.patience = std::chrono::seconds(20);
    options.servers.cut_from = 1;
    if (plan.dense) options.servers.dense_from = 1;
    options.servers.backups = plan.backups;
    options.virtual_workers = plan.virtual_workers;
    if (rank == by) options.stop = &reaper;
    return options;
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<Forward>(*account));
  };
  std::vector<Trained> all = TrainWith(plan.workers, task);
  CHECK(reaper.done());
  return all;
}

std::vector<Reaper::End> RandomEnds(std::mt19937& random, int servers) {
  std::vector<Reaper::End> ends(1 + random() % 3);
  for (Reaper::End& end : ends) {
    end.server = static_cast<int>(random() % servers);
    end.after = 1 + static_cast<int>(random() % 20);
    // Half of them are back before anybody has noticed.
    if (random() % 2 == 0) {
      end.away = std::chrono::milliseconds(random() % 120);
    }
  }
  return ends;
}

// A training that is struck ends as if nothing had befallen it; where it
// `has_bits`, with those.
void CheckGoesOn(Plan plan, bool has_bits, std::mt19937& random) {
  TemporaryFolder folder;
  if (random() % 3 > 0) plan.log_dir = folder / "log";
  plan.ends = RandomEnds(random, plan.servers);
  Account account;
  const std::vector<Trained> all = Train(plan, random, &account);
  for (const Trained& each : all) {
    REQUIRE(each.error == "");
    CHECK(each.result.steps == 48);
    CheckVariables(each, all[0]);
  }
  CHECK(account.begun() > plan.workers);
  CHECK(all[0].variables.at("global_step").At(0) == 48);
  if (plan.virtual_workers == 0) {  // of which an account has the first alone
    const auto seen = account.Seen();
    CHECK(seen.size() == kExamples);
    for (const auto& [example, times] : seen) {
      CAPTURE(example);
      CHECK(times == 2);
    }
  }
  if (!has_bits) return;
  Account undisturbed;
  plan.ends.clear();
  plan.dense = false;
  plan.log_dir.clear();
  const Trained same = Train(plan, random, &undisturbed)[0];
  CheckVariables(same, all[0]);
  REQUIRE(all[0].result.evaluation.has_value());
  CHECK(same.result.evaluation->values == all[0].result.evaluation->values);
}

TEST_CASE("whichever server ends and when, a training goes on and loses none") {
  std::mt19937 random(21);
  for (int trial = 0; trial < 18; ++trial) {
    CAPTURE(trial);
    Plan plan;
    plan.servers = 1 + static_cast<int>(random() % 3);
    plan.workers = 1 + trial % 3;
    const Lead leads[] = {kSync, Lead(kAnyLead), Lead(1)};
    plan.lead = leads[trial / 3 % 3];
    plan.table = trial % 2 == 1;
    plan.dense = trial / 2 % 2 == 0;
    // Those in step have them, and one alone.
    CheckGoesOn(plan, !plan.lead || plan.workers == 1, random);
  }
}

// Examples that are read and dropped are not read again either.
TEST_CASE("so does one whose steps do not wait for all") {
  std::mt19937 random(22);
  for (int trial = 0; trial < 8; ++trial) {
    CAPTURE(trial);
    Plan plan;
    plan.servers = 1 + static_cast<int>(random() % 2);
    plan.workers = 2 + trial % 2;
    plan.backups = static_cast<int64_t>(random() % plan.workers);
    plan.table = trial / 2 % 2 == 1;
    plan.dense = trial % 2 == 1;
    CheckGoesOn(plan, *plan.backups == 0, random);
  }
}

TEST_CASE("so does one of virtual workers") {
  std::mt19937 random(23);
  for (int trial = 0; trial < 8; ++trial) {
    CAPTURE(trial);
    Plan plan;
    plan.servers = 1 + static_cast<int>(random() % 3);
    plan.workers = 1 + trial % 3;
    plan.virtual_workers = 4;
    plan.table = trial / 2 % 2 == 1;
    plan.dense = trial % 2 == 1;
    CheckGoesOn(plan, /*has_bits=*/true, random);
  }
}

// By a word of another server, before this worker's own link to it ends, which
// is when the run that has failed is gone.
TEST_CASE("what was kept is there whoever tells first that a server is gone") {
  const auto train = [](bool strikes, RecordingReporter* notes) {
    JobServers job(2, DeviceType::kCpu, /*may_return=*/strikes);
    std::shared_ptr<Cluster> cluster;
    std::atomic<bool> told = !strikes, ends = false;
    // Goes with the input of the run.
    class AtEnd {
     public:
      explicit AtEnd(std::function<void()> fn) : fn_(std::move(fn)) {}
      AtEnd(const AtEnd&) = delete;
      AtEnd& operator=(const AtEnd&) = delete;
      ~AtEnd() { fn_(); }

     private:
      const std::function<void()> fn_;
    };
    const auto strike = [&] {
      if (!ends.exchange(false)) return;
      job.End(1);
      while (cluster->Lost().ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      job.Return(1);
    };
    Task task;
    task.run = ToyRun(2);
    task.run.batch_size = 5;
    task.spec = [&](int) {
      TrainerSpec spec = PlainSpec();
      spec.input = [&](const RunContext& run) {
        const Dataset all = Numbered(run);
        if (!run.training()) return all;
        const auto at_end = std::make_shared<AtEnd>(strike);
        return all.Map([at_end](Example&) {});
      };
      return spec;
    };
    task.options = [&](int rank) {
      TrainingOptions options{.log_every = 3};
      options.reporter = notes;
      options.servers = job.For(rank, kSync);
      options.servers.patience = std::chrono::seconds(20);
      cluster = options.servers.cluster;
      return options;
    };
    task.after_step = [&](int, TrainingRun& run) {
      if (run.step() != 31 || told.exchange(true)) return;
      ends = true;
      throw Error(Code::kUnavailable,
                  "/job:ps/task:0: /job:ps/task:1 is silent");
    };
    return TrainWith(1, task)[0];
  };
  RecordingReporter none, notes;
  const Trained undisturbed = train(false, &none);
  const Trained struck = train(true, &notes);
  CAPTURE(notes.text());
  CHECK(Contains(notes.text(), "it is waited for"));
  CHECK(Contains(notes.text(), "going on from step 30, kept in memory"));
  CheckVariables(struck, undisturbed);
  CHECK(struck.result.steps == 48);
}

TEST_CASE("a server that does not come back ends the training, in one line") {
  for (const Lead lead : {kSync, Lead(kAnyLead)}) {
    TemporaryFolder folder;
    JobServers job(2);
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1000)};
    task.may_join_again = true;
    task.tells_failure = true;
    task.options = [&](int rank) {
      TrainingOptions options{.log_dir = folder / "log",
                              .save_every = {.steps = 10}};
      options.servers = job.For(rank, lead);
      options.servers.patience = std::chrono::seconds(1);
      return options;
    };
    std::once_flag ends;
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == 0 && run.step() >= 73) {
        std::call_once(ends, [&] { job.End(1); });
      }
    };
    const std::vector<Trained> all = TrainWith(2, task);
    for (const Trained& each : all) {
      CAPTURE(each.error);
      CHECK(Contains(each.error, "/job:ps/task:1 has been gone for 1 s"));
    }
    CHECK(Contains(all[0].error, "what was saved last is"));
  }
}

}  // namespace
}  // namespace sluice
