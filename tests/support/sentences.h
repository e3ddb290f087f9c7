// A small classification task whose model reads rows of a table.
#ifndef SLUICE_TESTS_SUPPORT_SENTENCES_H_
#define SLUICE_TESTS_SUPPORT_SENTENCES_H_

#include <cstdint>
#include <random>
#include <set>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "models/train/trainer.h"

namespace sluice::testing {

inline constexpr int64_t kWords = 400, kSentences = 120;

// Sentences of three words, of which the last says most about the label.
inline Dataset Sentences(const RunContext& run) {
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

// One that is in none of them, for training or not.
inline int64_t UnreadWord() {
  std::set<int64_t> read;
  for (const uint32_t seed : {1u, 2u}) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < 3 * kSentences; ++i) {
      read.insert(static_cast<int64_t>(random() % (i % 3 == 0 ? 3 : kWords)));
    }
  }
  int64_t word = kWords - 1;
  while (read.contains(word)) --word;
  return word;
}

inline Dataset SentencesOnce(const RunContext& run) {
  RunContext once = run;
  once.mode = Mode::kEval;
  return Sentences(once);
}

// Its table is "words/table".
inline ModelSpec Reader(Scope& scope, const Features& in, const RunContext&) {
  const Output words = layers::Embedding(scope / "words", in["words"],
                                         {.size = kWords, .dimensions = 4});
  const Output logits =
      layers::Dense(scope / "logits", layers::Flatten(words), {.units = 3});
  return {.loss = losses::SparseSoftmaxCrossEntropy(logits, in["label"]),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

// One of four with updates of rows.
inline Optimizer OfRows(int which) {
  switch (which % 4) {
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
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SENTENCES_H_
