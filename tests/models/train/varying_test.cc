// Features of which more than the first dimension varies: sentences, cut to the
// longest of their batch.
#include <doctest/doctest.h>

#include <set>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/nn/metrics.h"
#include "models/train/export.h"
#include "models/train/run/inference.h"
#include "models/train/trainer.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;

constexpr int64_t kSentences = 70, kLongest = 9, kWords = 6;

// "words" int64 [kLongest], 0 behind the end; "label": whether word 1 is among
// them. With `cut`, a batch is as long as its longest sentence.
Dataset Sentences(const RunContext& run, bool cut) {
  Tensor words = Tensor::Zeros(DType::kInt64, {kSentences, kLongest});
  Tensor label = Tensor::Zeros(DType::kInt64, {kSentences});
  uint32_t state = 1;
  const auto random = [&](uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int64_t>((state >> 8) % n);
  };
  for (int64_t i = 0; i < kSentences; ++i) {
    const int64_t length = 1 + random(1 + static_cast<uint32_t>(i) % kLongest);
    for (int64_t j = 0; j < length; ++j) {
      const int64_t word = 1 + random(kWords - 1);
      words.data<int64_t>()[i * kLongest + j] = word;
      if (word == 1) label.data<int64_t>()[i] = 1;
    }
  }
  Dataset sentences =
      datasets::FromTensors({{"words", words}, {"label", label}});
  if (run.training()) sentences = sentences.Repeat();
  sentences = sentences.Batch(run.batch_size);
  if (!cut) return sentences;
  return sentences.Map([](Example& batch) {
    const Tensor& whole = batch["words"];
    const int64_t rows = whole.shape()[0];
    int64_t longest = 1;
    for (int64_t i = 0; i < rows * kLongest; ++i) {
      if (whole.IntAt(i) != 0) longest = std::max(longest, i % kLongest + 1);
    }
    Tensor shorter(DType::kInt64, {rows, longest});
    for (int64_t i = 0; i < rows * longest; ++i) {
      shorter.data<int64_t>()[i] =
          whole.IntAt(i / longest * kLongest + i % longest);
    }
    batch.Set("words", shorter);
  });
}

// The sum of the words' vectors; that of 0 is masked.
ModelSpec Bag(Scope& scope, const Features& in, const RunContext&) {
  const Output words = in.Varying("words", {1});
  const Output table =
      scope.graph().Variable("table", Filled(0.125, {kWords, 3}));
  const Output there = Cast(Greater(words, 0), DType::kFloat32);
  const Output sum = Sum(Gather(table, words) * ExpandDims(there, 2), {1});
  const Output logits = layers::Dense(scope / "logits", sum, {.units = 2});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}},
          .exports = {{"probabilities", Softmax(logits)}}};
}

TrainerSpec Spec(bool cut) {
  return {.name = "bag",
          .input = [cut](const RunContext& run) { return Sentences(run, cut); },
          .model = Bag,
          .optimizer = [](const RunContext&) { return optimizers::Sgd(0.1); }};
}

RunContext RunOf(int64_t batch) {
  RunContext run;
  run.batch_size = batch;
  run.epochs = 2;
  run.seed = 5;
  return run;
}

TEST_CASE("batches of any length train, evaluate and are predicted") {
  TemporaryFolder folder;
  for (const int64_t batch : {1, 7, 35}) {
    CAPTURE(batch);
    // The padding is masked: short batches are worth as much as padded ones.
    std::vector<double> losses;
    for (const bool cut : {false, true}) {
      const std::string log = folder / (cut ? "cut" : "whole");
      Trainer trainer(Spec(cut), RunOf(batch),
                      {.log_dir = log, .restart = true});
      CHECK(trainer.Train().steps == 2 * kSentences / batch);
      const Evaluation evaluation = trainer.Evaluate().value();
      CHECK(evaluation.examples == kSentences);
      losses.push_back(*evaluation.Find("loss"));
      std::set<int64_t> lengths;
      int64_t rows = 0;
      trainer.Predict([&](const Example& words, const Example& exports) {
        lengths.insert(words["words"].shape()[1]);
        rows += exports["probabilities"].shape()[0];
        return true;
      });
      CHECK(rows == kSentences);
      CHECK((lengths.size() > 1) == cut);
    }
    CHECK(losses[1] == doctest::Approx(losses[0]).epsilon(1e-5));
  }
}

TEST_CASE("an exported model takes any length") {
  TemporaryFolder folder;
  RunContext run = RunOf(7);
  run.mode = Mode::kEval;
  Inference inference(Spec(true), run, {});
  inference.Initialize();
  ExportModel(inference, {}, folder / "model");
  const auto model = LoadExported(folder / "model");
  for (const int64_t length : {1, 4, 30}) {
    const auto got = model->Predict(
        {{"words", Tensor::Full(DType::kInt64, {2, length}, 1)}});
    CHECK(got["probabilities"].shape() == Shape{2, 2});
  }
}

TEST_CASE("what varies is said before a feature is used, of what there is") {
  Graph graph;
  const Example batch = {{"x", Tensor::Zeros(DType::kFloat32, {4, 3})},
                         {"y", Tensor::Zeros(DType::kFloat32, {4})}};
  const Features in(graph, batch);
  CHECK(in["x"].shape() == Shape{kUnknown, 3});
  CHECK(Contains(ErrorOf([&] { in.Varying("x", {2}); }),
                 "'x' has 2 dimensions, there is no 2"));
  CHECK(Contains(ErrorOf([&] { in.Varying("x", {-1}); }), "there is no -1"));
  CHECK(Contains(ErrorOf([&] { in.Varying("z", {1}); }), "only: x, y"));
  CHECK(in.Varying("x", {1}).shape() == Shape{kUnknown, kUnknown});
  CHECK(in["x"].shape() == Shape{kUnknown, kUnknown});
  CHECK(in.ShapesFor(9) == std::vector<Shape>{{9, 3}, {9}});
  const Output used = Exp(in["y"]);
  CHECK(Contains(ErrorOf([&] { in.Varying("y", {}); }), used.node().name()));
}

}  // namespace
}  // namespace sluice
