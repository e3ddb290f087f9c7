// Few batches in place of the whole data, against reading the pipelines batch
// by batch.
#include "models/train/run/first_batches.h"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "io/checkpoints/checkpoint.h"
#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/train/hooks/hooks.h"
#include "models/train/trainer.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

RunContext Run(Mode mode, int64_t batch_size) {
  RunContext run;
  run.mode = mode;
  run.batch_size = batch_size;
  return run;
}

// "number" int64 [], 0 to n - 1.
Dataset Numbers(int64_t n) {
  Tensor number(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) number.data<int64_t>()[i] = i;
  return datasets::FromTensors({{"number", number}});
}

TrainerSpec SpecOf(const Dataset& input) {
  return {.name = "first_batches",
          .input = [input](const RunContext&) { return input; },
          .model = nullptr};
}

std::vector<Example> ReadAll(const Dataset& input, int64_t most) {
  std::vector<Example> batches;
  Iterator iterator = input.MakeIterator();
  Example batch;
  while (static_cast<int64_t>(batches.size()) < most &&
         iterator.Next(&batch).ValueOrThrow()) {
    batches.push_back(batch);
  }
  return batches;
}

// Those of the first pass alone: the last may go over into the next.
std::vector<Example> FirstOfPass(const Dataset& input, int64_t most) {
  const int64_t size = input.batch_size();
  int64_t left = input.examples_per_epoch();
  std::vector<Example> batches =
      ReadAll(input, std::min(most, (left + size - 1) / size));
  for (Example& batch : batches) {
    const int64_t rows = std::min(left, RowsOf(batch));
    for (auto& [name, tensor] : batch) tensor = tensor.Rows(0, rows);
    left -= rows;
  }
  return batches;
}

void CheckEqual(const Example& a, const Example& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    CAPTURE(name);
    CHECK(tensor.BitEqual(b[name]));
  }
}

// --- Pipelines at random -----------------------------------------------------

class RandomPipeline {
 public:
  explicit RandomPipeline(unsigned seed) : random_(seed) {}

  Dataset Make() {
    Dataset data = Numbers(Draw(1, 40));
    if (Draw(0, 2) == 0) data = data.Shard(Draw(0, 1), 2);
    for (int64_t i = Draw(0, 2); i > 0; --i) data = Stage(data);
    const int64_t size = Draw(1, 7);
    data = data.Batch(size, Draw(0, 4) == 0);
    if (Draw(0, 2) == 0) data = Wider(data);
    for (int64_t i = Draw(0, 1); i > 0; --i) data = Stage(data);
    return Draw(0, 1) == 0 ? data : data.Prefetch(2);
  }
  int64_t Draw(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }

 private:
  Dataset Stage(const Dataset& data) {
    const auto seed = static_cast<uint64_t>(Draw(1, 9));
    switch (Draw(0, 4)) {
      case 0:
        return data.Repeat();
      case 1:
        return data.Repeat(Draw(1, 3));
      case 2:
        return data.Shuffle(Draw(1, 50), seed);
      case 3:
        return data.Shuffle(50, seed).Repeat();
      default:
        return data.MapRandom(seed, [](Example& example, uint64_t key) {
          Tensor noisy = example["number"].Clone();
          for (int64_t& x : noisy.values<int64_t>()) {
            x = static_cast<int64_t>((static_cast<uint64_t>(x) * 7) ^ key);
          }
          example.Set("number", noisy);
        });
    }
  }
  // Batches that have another width each.
  static Dataset Wider(const Dataset& data) {
    return data.Map([](Example& batch) {
      const Tensor& number = batch["number"];
      const int64_t width = 1 + (number.IntAt(0) & 3);
      Tensor wide(DType::kInt64, {number.shape()[0], width});
      for (int64_t i = 0; i < wide.elements(); ++i) {
        wide.data<int64_t>()[i] = number.IntAt(i / width) + i % width;
      }
      batch.Set("wide", wide);
    });
  }

  std::mt19937 random_;
};

TEST_CASE("every pass is the first batches, from wherever it is resumed") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    RandomPipeline pipeline(seed);
    const Dataset input = pipeline.Make();
    const int64_t size = input.batch_size();
    const int64_t batches = pipeline.Draw(1, 12);
    CAPTURE(batches);
    const std::vector<Example> wanted = FirstOfPass(input, batches);
    const auto count = static_cast<int64_t>(wanted.size());

    const TrainerSpec spec = OverfitBatches(SpecOf(input), batches);
    const Dataset trained = spec.input(Run(Mode::kTrain, size));
    CHECK(trained.batch_size() == size);
    if (count == 0) {  // fewer than a whole batch, and those are dropped
      CHECK(trained.cardinality() == 0);
      CHECK(ReadAll(trained, 1).empty());
      continue;
    }
    CHECK(trained.cardinality() == kInfinite);
    CHECK(trained.examples_per_epoch() ==
          (count - 1) * size + RowsOf(wanted.back()));
    const Example sample = trained.Sample();
    for (const auto& [name, tensor] : sample) {
      CHECK(tensor.BitEqual(wanted[0][name].Rows(0, 1)));
    }

    const int64_t steps = 3 * count + 1;
    Iterator iterator = trained.MakeIterator();
    for (int64_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      Iterator resumed = trained.MakeIterator();
      REQUIRE(resumed.Restore(iterator.SavePosition()).ok());
      Example batch, again;
      REQUIRE(iterator.Next(&batch).ValueOrThrow());
      CheckEqual(batch, wanted[static_cast<size_t>(step % count)]);
      REQUIRE(resumed.Next(&again).ValueOrThrow());
      CheckEqual(again, batch);
      CHECK(resumed.SavePosition() == iterator.SavePosition());
    }

    const std::vector<Example> evaluated =
        ReadAll(spec.input(Run(Mode::kEval, size)), steps);
    REQUIRE(evaluated.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      CheckEqual(evaluated[i], wanted[i]);
    }
  }
}

TEST_CASE("an input that is not for training is cut, and ends") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    RandomPipeline pipeline(seed);
    const Dataset input = pipeline.Make();
    const int64_t size = input.batch_size();
    const int64_t batches = pipeline.Draw(1, 12);
    const TrainerSpec spec = FirstBatches(SpecOf(input), batches);
    CHECK(spec.input(Run(Mode::kTrain, size)).cardinality() ==
          input.cardinality());
    for (const Mode mode : {Mode::kEval, Mode::kPredict}) {
      const Dataset cut = spec.input(Run(mode, size));
      if (input.cardinality() == kInfinite) {
        CHECK(cut.cardinality() == kInfinite);  // an error of its own
        continue;
      }
      const std::vector<Example> wanted = FirstOfPass(input, batches);
      const std::vector<Example> got = ReadAll(cut, 1000);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) CheckEqual(got[i], wanted[i]);
    }
  }
}

// --- What they see -----------------------------------------------------------

TEST_CASE("evaluating asks for what training asked for") {
  std::vector<RunContext> seen;
  TrainerSpec spec = ToySpec();
  spec.input = [&](const RunContext& run) {
    seen.push_back(run);
    return testing::Points(run);
  };
  spec.class_names = [](const RunContext&) {
    return std::vector<std::string>{"a", "b", "c"};
  };
  spec.example_names = spec.class_names;
  const TrainerSpec overfit = OverfitBatches(spec, 2);
  CHECK(!overfit.example_names);  // which would be of other examples
  Trainer trainer(overfit, ToyRun(3), {});
  const TrainingResult result = trainer.Train();
  CHECK(result.steps == 6);  // an epoch is two batches
  CHECK(result.evaluation.value().set == "training");
  CHECK(result.evaluation->examples == 2 * 25);
  REQUIRE(seen.size() == 2);
  for (const RunContext& run : seen) {
    CHECK(run.training());
    CHECK(run.class_names.empty());
    CHECK(run.trained_on.empty());
    CHECK(run.steps_per_epoch == 0);
  }
  seen.clear();
  (void)overfit.input(Run(Mode::kPredict, 25));
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].mode == Mode::kPredict);
}

TEST_CASE("bad examples are passed over as ever, and told once") {
  const auto spec_with = [](int64_t per_cent) {
    TrainerSpec spec = SpecOf(Numbers(1));
    spec.input = [per_cent](const RunContext& run) {
      Dataset data = Numbers(50);
      if (run.training()) data = data.Shuffle(50, 3).Repeat();
      const auto read = [per_cent](Example& example) {
        const int64_t number = example["number"].IntAt(0);
        if (number % 100 * 37 % 100 >= per_cent) return;
        throw Error(Code::kDataLoss, "bad: " + std::to_string(number));
      };
      return data.Map(read, {.bad = run.bad_examples}).Batch(run.batch_size);
    };
    return spec;
  };
  const TrainerSpec spec = spec_with(30);
  for (const bool overfit : {true, false}) {
    RunContext run = Run(overfit ? Mode::kTrain : Mode::kEval, 4);
    run.bad_examples = std::make_shared<BadExamples>(100);
    const std::vector<Example> wanted = ReadAll(spec.input(run), 3);
    const int64_t known = run.bad_examples->count();
    CHECK(known > 0);

    run.bad_examples = std::make_shared<BadExamples>(100);
    const Dataset input =
        (overfit ? OverfitBatches(spec, 3) : FirstBatches(spec, 3)).input(run);
    Iterator iterator = input.MakeIterator();
    for (size_t step = 0; step < (overfit ? 10 : 3); ++step) {
      Iterator resumed = input.MakeIterator();
      REQUIRE(resumed.Restore(iterator.SavePosition()).ok());
      for (Iterator* each : {&resumed, &iterator}) {
        Example batch;
        REQUIRE(each->Next(&batch).ValueOrThrow());
        CheckEqual(batch, wanted[step % 3]);
      }
    }
    CHECK(run.bad_examples->count() == known);

    run.bad_examples = std::make_shared<BadExamples>(0);
    CHECK(Contains(ErrorOf([&] { (void)OverfitBatches(spec, 3).input(run); }),
                   "bad: "));
  }
  RunContext run = Run(Mode::kTrain, 4);
  run.bad_examples = std::make_shared<BadExamples>(100);
  CHECK(Contains(
      ErrorOf([&] { (void)OverfitBatches(spec_with(100), 1).input(run); }),
      "no example can be read"));
}

TEST_CASE("positions are of the same batches alone") {
  const auto input = [](int64_t batches, uint64_t seed, int64_t size) {
    const Dataset data = Numbers(30).Shuffle(30, seed).Repeat().Batch(size);
    return OverfitBatches(SpecOf(data), batches).input(Run(Mode::kTrain, size));
  };
  Iterator iterator = input(2, 1, 5).MakeIterator();
  Example batch;
  REQUIRE(iterator.Next(&batch).ValueOrThrow());
  const std::string position = iterator.SavePosition();
  // What names the data is still in it (TrainerSpec::evaluated_on).
  CHECK(Contains(position, "shuffle(30,1)"));
  CHECK(input(2, 1, 5).MakeIterator().Restore(position).ok());
  CHECK(!input(3, 1, 5).MakeIterator().Restore(position).ok());
  CHECK(!input(2, 2, 5).MakeIterator().Restore(position).ok());
  CHECK(!input(2, 1, 6).MakeIterator().Restore(position).ok());
}

TEST_CASE("no batches, and none that could be") {
  for (const int64_t batches : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    CHECK(Contains(ErrorOf([&] { OverfitBatches(ToySpec(), batches); }),
                   "wanted at least one batch"));
    CHECK(Contains(ErrorOf([&] { FirstBatches(ToySpec(), batches); }),
                   "wanted at least one batch"));
  }
  const TrainerSpec all = OverfitBatches(ToySpec(), INT64_MAX);
  CHECK(all.input(ToyRun(1)).examples_per_epoch() == testing::kPoints);
  RunContext run = ToyRun(1);
  CHECK(Contains(ErrorOf([&] {
                   TrainerSpec spec = ToySpec();
                   spec.input = [](const RunContext& context) {
                     return Numbers(0).Batch(context.batch_size);
                   };
                   Trainer(OverfitBatches(spec, 1), run, {}).Train();
                 }),
                 "the dataset is empty"));
}

// --- Training ----------------------------------------------------------------

TEST_CASE("labels at random are learnt by heart") {
  constexpr int64_t kExamples = 200, kFeatures = 8;
  std::mt19937 random(5);
  Tensor x(DType::kFloat32, {kExamples, kFeatures});
  for (float& value : x.values<float>()) {
    value = std::normal_distribution<float>()(random);
  }
  Tensor label(DType::kInt64, {kExamples});
  for (int64_t& value : label.values<int64_t>()) {
    value = static_cast<int64_t>(random() % 3);
  }
  TrainerSpec spec;
  spec.name = "by heart";
  spec.input = [&](const RunContext& run) {
    Dataset data = datasets::FromTensors({{"x", x}, {"label", label}});
    if (run.training()) data = data.Shuffle(kExamples, run.seed).Repeat();
    return data.Batch(run.batch_size);
  };
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    const Output hidden = layers::Dense(scope / "hidden", in["x"],
                                        {.units = 64, .activation = Relu});
    const Output logits = layers::Dense(scope / "logits", hidden, {.units = 3});
    return ModelSpec{.loss =
                         Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
  };
  spec.optimizer = [](const RunContext&) { return optimizers::Adam(0.01); };
  RunContext run;
  run.batch_size = 16;
  run.steps = 300;
  const auto loss_of = [&](const TrainerSpec& of) {
    return *Trainer(of, run, {}).Train().evaluation.value().Find("loss");
  };
  CHECK(loss_of(OverfitBatches(spec, 2)) < 0.01);
  CHECK(loss_of(spec) > 0.1);  // which the whole set is not, so soon
}

TEST_CASE("20 steps are 7, a resume and 13, bit for bit") {
  TemporaryFolder folder;
  const auto train = [&](const std::string& log_dir, int64_t steps) {
    TrainingOptions options;
    options.log_dir = folder / log_dir;
    Trainer trainer(OverfitBatches(ToySpec(), 3), ToyRun(20), options);
    trainer.AddHook(std::make_unique<StopAtStep>(steps));
    CHECK(trainer.Train().steps == steps);
  };
  train("whole", 20);
  train("parts", 7);
  train("parts", 20);
  std::map<std::string, Tensor> tensors;
  for (const char* log_dir : {"whole", "parts"}) {
    const auto saved = CheckpointManager::ForReading(folder / log_dir)
                           .RestoreNewest()
                           .ValueOrThrow();
    for (const auto& [name, tensor] : saved->checkpoint.tensors) {
      CAPTURE(name);
      const auto [known, is_new] = tensors.emplace(name, tensor);
      CHECK(tensor.BitEqual(known->second));
    }
  }
}

TEST_CASE("a quick try evaluates and predicts on few") {
  TemporaryFolder folder;
  TrainingOptions options;
  options.log_dir = folder / "log";
  Trainer trainer(FirstBatches(ToySpec(), 2), ToyRun(1), options);
  const TrainingResult result = trainer.Train();
  CHECK(result.steps == 10);  // of an epoch as long as ever
  CHECK(result.evaluation.value().examples == 2 * 25);
  CHECK(result.evaluation->set == "test");
  int64_t predicted = 0;
  trainer.Predict([&](const Example& batch, const Example&) {
    predicted += RowsOf(batch);
    return true;
  });
  CHECK(predicted == 2 * 25);

  TrainerSpec endless = ToySpec();
  endless.input = [](const RunContext& run) {
    return testing::Points(run).Repeat();
  };
  CHECK(Contains(ErrorOf([&] {
                   Trainer(FirstBatches(endless, 2), ToyRun(1), {}).Train();
                 }),
                 "repeats for ever"));
}

}  // namespace
}  // namespace sluice
