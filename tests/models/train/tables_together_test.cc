// Trainings of tables by several workers, which exchange the rows that they
// have read: what one process trains.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/nn/losses.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckNear;
using testing::Task;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

constexpr int64_t kWords = 400, kSentences = 120;

// Sentences of three words, of which the last says most about the label.
Dataset Sentences(const RunContext& run) {
  Tensor words(DType::kInt64, {kSentences, 3});
  Tensor label(DType::kInt64, {kSentences});
  std::mt19937 random(run.training() ? 1 : 2);
  for (int64_t i = 0; i < kSentences; ++i) {
    for (int64_t k = 0; k < 3; ++k) {
      // Some words are in most sentences.
      words.data<int64_t>()[3 * i + k] =
          static_cast<int64_t>(random() % (k == 0 ? 3 : kWords));
    }
    label.data<int64_t>()[i] = words.data<int64_t>()[3 * i + 2] % 3;
  }
  Dataset all = datasets::FromTensors({{"words", words}, {"label", label}});
  if (run.training()) all = all.Shuffle(kSentences, run.seed).Repeat();
  return all.Batch(run.batch_size).Prefetch(2);
}

Dataset SentencesOnce(const RunContext& run) {
  RunContext once = run;
  once.mode = Mode::kEval;
  return Sentences(once);
}

ModelSpec Reader(Scope& scope, const Features& in, const RunContext&) {
  const Output words = layers::Embedding(scope / "words", in["words"],
                                         {.size = kWords, .dimensions = 4});
  const Output logits =
      layers::Dense(scope / "logits", layers::Flatten(words), {.units = 3});
  return {.loss = losses::SparseSoftmaxCrossEntropy(logits, in["label"]),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

TEST_CASE("several workers train a table as one does") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 8; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    Task task;
    task.run = ToyRun(3);
    task.run.batch_size = workers + static_cast<int64_t>(random() % 20);
    const bool once = random() % 2 == 0;
    bool by_rows = false;
    task.spec = [&](int) {
      TrainerSpec spec = ToySpec();
      spec.input = once ? SentencesOnce : Sentences;
      spec.model = Reader;
      spec.optimizer = [trial](const RunContext&) {
        switch (trial % 4) {
          case 0:
            return optimizers::Sgd(0.5);
          case 1:
            return optimizers::Adagrad(0.1, {.epsilon = 0.1});
          case 2:
            return optimizers::Adam(0.01, {.epsilon = 0.1})
                .WithSparseRows("words/*")
                .With(gradients::ClipByGlobalNorm(0.3));
          default:
            return optimizers::Momentum(0.1).WithSparseRows("words/*");
        }
      };
      return spec;
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank > 0) return;
      for (const auto& node : run.graph().nodes()) {
        by_rows = by_rows || node->Is("AllGather");
      }
    };
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(task.run.batch_size);
    CAPTURE(once);
    const Trained one = TrainWith(1, task)[0];
    CHECK(!by_rows);
    const std::vector<Trained> all = TrainWith(workers, task);
    CHECK(by_rows);
    CheckNear(all[0], one, 2e-4);
    for (const Trained& each : all) CheckEqual(each, all[0]);
    const std::vector<Trained> again = TrainWith(workers, task);
    CheckEqual(again[0], all[0]);
  }
}

}  // namespace
}  // namespace sluice
