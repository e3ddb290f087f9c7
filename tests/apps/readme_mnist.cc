#include <sluice/sluice.h>

using namespace sluice;

Dataset Input(const RunContext& run) {
  Dataset digits = datasets::Mnist(run.data_dir, run.mode);
  if (run.training()) digits = digits.Shuffle(60'000, run.seed).Repeat();
  return digits.Map(ScaleTo01("image")).Batch(run.batch_size).Prefetch(2);
}

ModelSpec Model(Scope& scope, const Features& in, const RunContext&) {
  Output x = layers::Conv2D(scope / "conv1", in["image"],
                            {.filters = 32, .kernel = 5, .activation = Relu});
  x = layers::Flatten(layers::MaxPool(x, {.size = 2}));
  x = layers::Dense(scope / "fc1", x, {.units = 128, .activation = Relu});
  Output logits = layers::Dense(scope / "logits", x, {.units = 10});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}},
          .exports = {{"probabilities", Softmax(logits)}}};
}

Optimizer Train(const RunContext& run) {
  return optimizers::Momentum(Schedule("1:0.01->0.1,3:0.1->0", run), 0.9);
}

int main(int argc, char** argv) {
  return Main(
      argc, argv,
      {.name = "digits", .input = Input, .model = Model, .optimizer = Train});
}
