// What the processes of a training with one large table hold at most: 20
// million rows of 16 numbers, of which a step reads some hundreds. Each says
// its peak when it ends.
//
//   sluicerun -n 2 --ps 2 table_bench train --strategy ps --steps 200
//       --consistency async --log-dir FOLDER
//   table_bench train --steps 200 --log-dir FOLDER    # one process, all of it
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/cli/main.h"
#include "models/nn/layers.h"
#include "models/nn/metrics.h"
#include "models/optim/optimizers.h"
#include "models/train/run/memory_check.h"

namespace sluice {
namespace {

constexpr int64_t kExamples = 20'000, kWords = 8;

// Words all over the table; the label is a property of the first.
Dataset Input(const RunContext& run) {
  const auto rows = std::strtoll(run.flag("rows").c_str(), nullptr, 10);
  Tensor words(DType::kInt64, {kExamples, kWords});
  Tensor label(DType::kInt64, {kExamples});
  std::mt19937_64 random(run.training() ? 1 : 2);
  for (int64_t& word : words.values<int64_t>()) {
    word = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
  }
  for (int64_t i = 0; i < kExamples; ++i) {
    label.data<int64_t>()[i] = words.data<int64_t>()[kWords * i] % 2;
  }
  Dataset all = datasets::FromTensors({{"words", words}, {"label", label}});
  if (run.training()) all = all.Shuffle(kExamples, run.seed).Repeat();
  return all.Batch(run.batch_size).Prefetch(2);
}

ModelSpec Model(Scope& scope, const Features& in, const RunContext& run) {
  const auto rows = std::strtoll(run.flag("rows").c_str(), nullptr, 10);
  const Output words = layers::Embedding(scope / "words", in["words"],
                                         {.size = rows, .dimensions = 16});
  const Output logits =
      layers::Dense(scope / "logits", layers::Flatten(words), {.units = 2});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

void SayPeak() {
  std::cerr << fmt::format("peak memory: {:.0f} MB\n",
                           static_cast<double>(PeakMemory()) / 1e6);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;  // NOLINT: a program
  std::atexit(SayPeak);
  return Main(
      argc, argv,
      {.name = "table",
       .input = Input,
       .model = Model,
       .optimizer = [](const RunContext&) { return optimizers::Adagrad(0.1); },
       .flags = {{"rows", "Of the table", "20000000"}}});
}
