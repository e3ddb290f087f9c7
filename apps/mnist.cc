// mnist: trains and runs networks that read handwritten digits.
//
//   mnist train --data-dir FOLDER --log-dir runs/first
//   mnist predict --log-dir runs/first IMAGE...
#include <algorithm>
#include <mutex>

#include "apps/mnist/pictures.h"
#include "apps/mnist/records.h"
#include "apps/shards/label_offset.h"
#include "engine/status.h"
#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/cli/console.h"
#include "models/cli/main.h"
#include "models/nn/class_weights.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "models/zoo/mnist_networks.h"

namespace {

using namespace sluice;  // NOLINT: a program of one file

// Synthetic digits: how many, and two sequences that share none.
constexpr int64_t kSyntheticTraining = 20'000;
constexpr int64_t kSyntheticTest = 5'000;
constexpr uint64_t kTrainingSequence = 1;
constexpr uint64_t kTestSequence = 2;

bool OfShards(const RunContext& run) {
  return run.files.empty() && !run.data_dir.empty() &&
         mnist::HasShards(run.data_dir);
}

Dataset Shuffled(const Dataset& digits, const RunContext& run) {
  if (!run.training()) return digits;
  return digits.Shuffle(60'000, run.seed).Repeat();
}

Dataset FromShards(const RunContext& run) {
  const mnist::RecordDigits records(run);
  return Shuffled(records.Numbers(), run)
      .Map([records](Example& example) { records.Read(example); },
           {.bad = run.bad_examples,
            .threads = run.input_threads,
            .name = "decode"});
}

Dataset Digits(const RunContext& run) {
  if (!run.files.empty()) return mnist::Pictures(run);
  if (!run.data_dir.empty()) return datasets::Mnist(run.data_dir, run.mode);
  static std::once_flag said;
  std::call_once(said, [] {
    console::Note(
        "no --data-dir: these are synthetic digits that the program draws, not "
        "real handwriting");
  });
  return run.training()
             ? datasets::SyntheticDigits(kSyntheticTraining, kTrainingSequence)
             : datasets::SyntheticDigits(kSyntheticTest, kTestSequence);
}

Dataset Input(const RunContext& run) {
  const Dataset digits =
      OfShards(run) ? FromShards(run) : Shuffled(Digits(run), run);
  return digits.Map(ScaleTo01("image")).Batch(run.batch_size).Prefetch(2);
}

ModelSpec Model(Scope& scope, const Features& in, const RunContext& run) {
  const Output logits =
      MnistNetwork(scope, run.flag("model"), in["image"], run.training());
  const std::string& weights = run.flag("class-weights");
  return {.loss = losses::SparseSoftmaxCrossEntropy(
              logits, in["label"], {},
              run.training() && !weights.empty()
                  ? ParseClassWeights(weights, mnist::kClasses, {})
                  : std::vector<double>()),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}},
          .exports = {{"probabilities", Softmax(logits)},
                      {"digit", ArgMax(logits)}}};
}

void Defaults(RunContext& run) {
  shards::CheckLabelOffset(run, !run.files.empty() || OfShards(run),
                           "--data-dir");
  run.batch_size = 100;
  run.epochs = run.flag("model") == "cnn" ? 5 : 20;
}

// Adam with a rate that falls to nothing over the whole training.
Optimizer Train(const RunContext& run) {
  const double rate = run.flag("model") == "softmax" ? 0.003 : 0.001;
  return optimizers::Adam(
      schedules::Cosine(rate, std::max<int64_t>(1, run.total_steps())));
}

}  // namespace

int main(int argc, char** argv) {
  return Main(
      argc, argv,
      {.name = "mnist",
       .input = Input,
       .model = Model,
       .optimizer = Train,
       .flags = {{"model",
                  "Softmax regression, perceptron or convolutions",
                  "cnn",
                  {"softmax", "mlp", "cnn"}},
                 {"label-offset",
                  "The label of the digit 0 in the shards of --data-dir, which "
                  "may be records or tar archives, train-NNNNN-of-MMMMM and "
                  "validation-..., of 28 x 28 grey pixels: a whole number, or "
                  "auto: 1 if 10 is a label, 0 if 0 is one, else as in the "
                  "training or 0",
                  "auto",
                  {},
                  Flag::Kind::kText,
                  /*of_data=*/true},
                 {"allow-missing-shards",
                  "Go on where shards of --data-dir are missing or hold "
                  "nothing, which is an error otherwise, unless that is a "
                  "pattern that leaves them out",
                  "",
                  {},
                  Flag::Kind::kSwitch,
                  /*of_data=*/true},
                 {"class-weights",
                  "Of the loss in training: DIGIT=WEIGHT, several with commas "
                  "between them; evaluations are not weighted (default: all "
                  "1)",
                  ""}},
       .files = "JPEG or PNG pictures of a digit each",
       .defaults = Defaults,
       .model_name = [](const RunContext& run) { return run.flag("model"); },
       .dataset_name = [](const RunContext& run) -> std::string {
         if (run.data_dir.empty()) return "synthetic";
         return OfShards(run) ? run.data_dir : "mnist";
       },
       .evaluated_on = [](const RunContext& run) -> std::string {
         return OfShards(run) ? shards::ShardsEvaluatedOn(run, run.data_dir,
                                                          mnist::kCompressed)
                              : "test";
       }});
}
