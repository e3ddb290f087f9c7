// Trainings, and evaluations, by several workers, each a thread of this
// process.
#ifndef SLUICE_TESTS_SUPPORT_WORKER_THREADS_H_
#define SLUICE_TESTS_SUPPORT_WORKER_THREADS_H_

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/train/trainer.h"
#include "models/train/values/variable_values.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/toy_training.h"

namespace sluice::testing {

// What one worker saw of a training.
struct Trained {
  std::vector<double> losses;  // of each step
  std::map<std::string, Tensor> variables;
  TrainingResult result;
  std::string error;  // of Train; empty: none
};

// Called after every step of a worker.
using OnStep = std::function<void(int rank, TrainingRun& run)>;

class Watch : public Hook {
 public:
  Watch(int rank, const OnStep& after, Trained* trained)
      : rank_(rank), after_(after), trained_(trained) {}
  void AfterStep(TrainingRun& run) override {
    trained_->losses.push_back(run.loss());
    if (after_) after_(rank_, run);
  }
  void End(TrainingRun& run) override {
    const Session& session = std::as_const(run).session();
    for (const Output& variable : run.graph().Variables()) {
      const bool here = session.CanRead(variable);
      if (!here && rank_ > 0) continue;  // rank 0 has gathered it
      trained_->variables[variable.name()] =
          here ? session.Read(variable) : run.ValueOf(variable);
    }
  }

 private:
  const int rank_;
  const OnStep& after_;
  Trained* const trained_;
};

// What each worker is to do: by rank, so that they can be made to differ.
struct Task {
  std::function<TrainerSpec(int rank)> spec;
  RunContext run;
  std::function<TrainingOptions(int rank)> options = [](int) {
    return TrainingOptions();
  };
  std::function<void(Trainer& trainer)> add_hooks = nullptr;
  OnStep after_step = nullptr;
  // What a worker's session is given of its group; null: the group.
  std::function<std::shared_ptr<Collective>(std::shared_ptr<dist::Group>)>
      meet = nullptr;
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(20);
  // Whether a worker that fails says so, as programs do (models/cli/job.h),
  // before it goes.
  bool tells_failure = false;
  bool may_join_again = false;  // dist::GroupOptions
  int stages = 1;               // PipelineStages::count
};

// As a user's hand ends a training: of one worker, who is asked between steps
// and while it evaluates, and who is slow from then on.
class ToldAtQuestion : public StopToken {
 public:
  explicit ToldAtQuestion(int question) : left_(question) {}
  std::string Reason() const override {
    if (--left_ >= 0) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return "told to";
  }

 private:
  mutable std::atomic<int> left_;
};

// Calls `work` by all of them, with the task's options; without a collective
// where there is one. Returns the error of each; empty: none.
inline std::vector<std::string> InWorkers(
    int workers, const Task& task,
    const std::function<void(int rank, const TrainingOptions& options)>& work) {
  const dist::testing::Watchdog watchdog;
  dist::testing::Groups groups(1);
  if (workers > 1) {
    groups = dist::testing::JoinAll(workers,
                                    {.peer_timeout = task.peer_timeout,
                                     .may_join_again = task.may_join_again});
  }
  std::vector<std::string> errors(static_cast<size_t>(workers));
  dist::testing::InThreads(workers, [&](int rank) {
    std::string& error = errors[static_cast<size_t>(rank)];
    const std::shared_ptr<dist::Group> group =
        std::move(groups[static_cast<size_t>(rank)]);
    try {
      TrainingOptions options = task.options(rank);
      options.session.collective = task.meet ? task.meet(group) : group;
      if (task.stages > 1) {
        dist::PeersOptions peers;
        peers.task.token = "pipeline";
        peers.task.peer_timeout = task.peer_timeout;
        options.pipeline = MeetStages(*group, task.stages, peers);
      }
      work(rank, options);
    } catch (const Error& thrown) {
      error = thrown.what();
      if (group != nullptr && task.tells_failure) {
        group->Leave(Status(Code::kUnavailable, error));
      }
    }
  });
  return errors;
}

inline std::vector<Trained> TrainWith(int workers, const Task& task) {
  std::vector<Trained> trained(static_cast<size_t>(workers));
  const std::vector<std::string> errors =
      InWorkers(workers, task, [&](int rank, const TrainingOptions& options) {
        Trained& mine = trained[static_cast<size_t>(rank)];
        Trainer trainer(task.spec(rank), task.run, options);
        if (task.add_hooks) task.add_hooks(trainer);
        trainer.AddHook(std::make_unique<Watch>(rank, task.after_step, &mine));
        mine.result = trainer.Train();
      });
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    trained[rank].error = errors[rank];
  }
  return trained;
}

// What one worker has of an evaluation of what was trained.
struct Evaluated {
  std::optional<Evaluation> evaluation;
  std::string interrupted, error;  // empty: none
};

inline std::vector<Evaluated> EvaluateWith(int workers, const Task& task) {
  std::vector<Evaluated> evaluated(static_cast<size_t>(workers));
  const std::vector<std::string> errors =
      InWorkers(workers, task, [&](int rank, const TrainingOptions& options) {
        Evaluated& mine = evaluated[static_cast<size_t>(rank)];
        Trainer trainer(task.spec(rank), task.run, options);
        mine.evaluation = trainer.Evaluate();
        mine.interrupted = trainer.interrupted();
      });
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    evaluated[rank].error = errors[rank];
  }
  return evaluated;
}

// A classifier of three classes, with metrics that have a state.
inline ModelSpec ThreeClasses(const Output& logits, const Output& label) {
  const Output probability =
      Reshape(Slice(Softmax(logits), {0, 1}, {-1, 1}), {-1});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, label)),
          .metrics = {
              {"accuracy", Accuracy(logits, label)},
              {"f1", F1(logits, label)},
              {"auc", AreaUnderCurve(probability, Equal(label, int64_t{1}))}}};
}

// As the toy, without what makes a share's result depend on its size.
inline ModelSpec Plain(Scope& scope, const Features& in, const RunContext&) {
  Output x =
      layers::Dense(scope / "fc1", in["x"], {.units = 16, .activation = Tanh});
  return ThreeClasses(layers::Dense(scope / "logits", x, {.units = 3}),
                      in["label"]);
}

inline TrainerSpec PlainSpec() {
  TrainerSpec spec = ToySpec();
  spec.model = Plain;
  return spec;
}

// The same that measures more: `add` gets how many examples a share has.
using AddMeasures = std::function<void(ModelSpec& model, const Output& rows,
                                       const RunContext& run)>;
inline TrainerSpec Measuring(const AddMeasures& add) {
  TrainerSpec spec = PlainSpec();
  spec.model = [add](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = Plain(scope, in, run);
    add(model, Size(in["label"]), run);
    return model;
  };
  return spec;
}

// Measures for which workers meet, each by a node 'of_all'.
inline std::vector<AddMeasures> MeasuresOfAll() {
  const auto metric = [](DType dtype) {
    return [dtype](ModelSpec& model, const Output& rows, const RunContext&) {
      model.metrics.emplace_back(
          "rows",
          Metric(AllReduce(Cast(rows, dtype), Reduction::kSum, "of_all")));
    };
  };
  const auto summary = [](ModelSpec& model, const Output& rows,
                          const RunContext&) {
    model.summaries.emplace_back("rows",
                                 AllReduce(rows, Reduction::kSum, "of_all"));
  };
  const auto rank = [](ModelSpec& model, const Output& rows,
                       const RunContext&) {
    model.summaries.emplace_back("rank", WorkerRank(rows.graph(), "of_all"));
  };
  // In evaluations alone.
  const auto evaluated = [metric](ModelSpec& model, const Output& rows,
                                  const RunContext& run) {
    if (!run.training()) metric(DType::kFloat32)(model, rows, run);
  };
  return {metric(DType::kInt64), metric(DType::kFloat32), summary, rank,
          evaluated};
}

// Of 100 examples, in order, of which training cannot read that of a number, as
// long as there is one (from 0 on; below 0: it can read all).
inline TrainerSpec Unreadable(int64_t number) {
  TrainerSpec spec = PlainSpec();
  spec.input = [number](const RunContext& run) {
    constexpr int64_t kExamples = 100;
    Tensor x(DType::kFloat32, {kExamples, 3});
    Tensor label(DType::kInt64, {kExamples});
    for (int64_t i = 0; i < kExamples; ++i) {
      label.data<int64_t>()[i] = i % 3;
      for (int64_t j = 0; j < 3; ++j) {
        x.data<float>()[3 * i + j] =
            static_cast<float>(j == 0 ? i : i * (j + 2) % 17) / kExamples;
      }
    }
    const bool fails = run.training() && number >= 0;
    Dataset all =
        datasets::FromTensors({{"x", x}, {"label", label}})
            .Map([=](Example& example) {
              if (!fails ||
                  std::lround(example["x"].At(0) * kExamples) != number) {
                return;
              }
              throw Error(Code::kDataLoss, "an example cannot be read");
            });
    if (run.training()) all = all.Repeat();
    return all.Batch(run.batch_size);
  };
  return spec;
}

inline void CheckEqual(const Trained& a, const Trained& b) {
  REQUIRE(a.error == "");
  REQUIRE(b.error == "");
  CHECK(a.result.steps == b.result.steps);
  CHECK(a.losses == b.losses);
  REQUIRE(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(b.variables.at(name)));
  }
}

// In evaluations, too.
inline void CheckSameBits(const Trained& a, const Trained& b) {
  CheckEqual(a, b);
  REQUIRE(a.result.evaluation.has_value());
  REQUIRE(b.result.evaluation.has_value());
  CHECK(a.result.evaluation->values == b.result.evaluation->values);
  CHECK(a.result.evaluation->examples == b.result.evaluation->examples);
}

inline void CheckNear(const Tensor& a, const Tensor& b, double tolerance) {
  REQUIRE(a.elements() == b.elements());
  double largest = 0, apart = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    largest = std::max(largest, std::abs(b.At(i)));
    apart = std::max(apart, std::abs(a.At(i) - b.At(i)));
  }
  CHECK(apart <= tolerance * (1 + largest));
}

// To rounding.
inline void CheckNear(const Trained& a, const Trained& b, double tolerance) {
  REQUIRE(a.error == "");
  REQUIRE(b.error == "");
  REQUIRE(a.losses.size() == b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(tolerance));
  }
  REQUIRE(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    CAPTURE(name);
    CheckNear(value, b.variables.at(name), tolerance);
  }
  REQUIRE(a.result.evaluation.has_value());
  REQUIRE(b.result.evaluation.has_value());
  CHECK(a.result.evaluation->examples == b.result.evaluation->examples);
  const auto& values = b.result.evaluation->values;
  REQUIRE(a.result.evaluation->values.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i].first);
    CHECK(a.result.evaluation->values[i].second ==
          doctest::Approx(values[i].second).epsilon(0.01));
  }
}

// Some optimizer with some of what may come between gradient and update.
inline Optimizer RandomOptimizer(std::mt19937& random) {
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  Optimizer optimizer = optimizers::Momentum(0.05, 0.9);
  switch (draw(3)) {
    case 0:
      optimizer = optimizers::Sgd(0.1);
      break;
    case 1:
      optimizer = optimizers::RmsProp(0.01, {.epsilon = 1e-3});
      break;
  }
  if (draw(3) == 0) optimizer = optimizer.With(gradients::WeightDecay(0.01));
  if (draw(3) == 0) optimizer = optimizer.With(gradients::Accumulate(3));
  if (draw(3) == 0) {
    optimizer = optimizer.With(gradients::ClipByGlobalNorm(0.2));
  }
  if (draw(3) == 0) optimizer = optimizer.WithAverages(0.9);
  if (draw(3) == 0) optimizer = optimizer.WithLossScaling({.initial = 256});
  return optimizer;
}

// Of a seed: such, or one that looks at whole variables, or has slots of two
// kinds.
inline Optimizer SomeOptimizer(uint32_t seed) {
  std::mt19937 random(seed);
  switch (seed % 4) {
    case 0:
      return optimizers::Lars(0.1);
    case 1:
      return optimizers::Lamb(0.01);
    case 2:
      return optimizers::Adam(0.01).WithAverages(0.9);
    default:
      return RandomOptimizer(random);
  }
}

// The same with the optimizer of a seed; unless it repeats its input, that ends
// with a batch that some workers may have nothing of.
inline TrainerSpec WithRandomOptimizer(TrainerSpec spec, uint32_t seed,
                                       bool repeats) {
  spec.optimizer = [seed](const RunContext&) {
    std::mt19937 same(seed);
    return RandomOptimizer(same);
  };
  if (!repeats) spec.input = PointsOnce;
  return spec;
}

// With so many virtual workers.
inline TrainingOptions Virtual(int64_t workers) {
  TrainingOptions options;
  options.virtual_workers = workers;
  options.session.deterministic = true;
  return options;
}

inline Task ToyTask(int64_t virtual_workers, double epochs) {
  Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(epochs)};
  task.options = [=](int) { return Virtual(virtual_workers); };
  return task;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_WORKER_THREADS_H_
