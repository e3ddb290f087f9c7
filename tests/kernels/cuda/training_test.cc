// Training on /gpu:0 against the same training on the CPU: with and without
// fusion, in every precision, resumed, and after an overflow.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "io/checkpoints/checkpoint.h"
#include "io/images/image.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::OnGpu;
using testing::Ramp;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// A network with everything that ResNet has, small: convolutions with and
// without strides, normalisation with addition and ReLU, both pools, a dense
// layer, momentum with weight decay.
struct SmallResNet {
  Graph graph;
  Output images, labels, loss;
  Operation train;

  explicit SmallResNet(bool scale_losses) {
    images = graph.Placeholder("images", DType::kFloat32, {4, 8, 8, 3});
    labels = graph.Placeholder("labels", DType::kInt64, {4});
    Scope scope(graph, "net");
    const auto block = [](const Scope& at, const Output& x, int64_t filters,
                          int64_t stride, const Output& addend) {
      const Output y = layers::Conv2D(
          at / "conv", x,
          {.filters = filters, .stride = stride, .use_bias = false});
      return addend.valid()
                 ? Relu(layers::BatchNorm(at / "norm", y, {.training = true}) +
                        addend)
                 : layers::BatchNorm(at / "norm", y,
                                     {.training = true, .activation = Relu});
    };
    Output x = block(scope / "stem", images, 8, 1, {});
    x = layers::MaxPool(x, {.size = 3, .stride = 2, .padding = Padding::kSame});
    const Output y = block(scope / "first", x, 8, 1, {});
    x = block(scope / "second", y, 8, 1, x);
    x = block(scope / "third", x, 16, 2, {});
    x = layers::Dense(scope / "hidden", layers::GlobalAvgPool(x),
                      {.units = 12, .activation = Relu});
    const Output logits = layers::Dense(scope / "logits", x, {.units = 5});
    loss = Mean(SparseSoftmaxCrossEntropy(logits, labels));
    Optimizer optimizer =
        optimizers::Momentum(0.05, 0.9).With(gradients::WeightDecay(1e-3));
    if (scale_losses) optimizer = optimizer.WithLossScaling();
    train = optimizer.Minimize(loss);
  }
};

// The losses of some steps, and the variables after them.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> variables;
};
// ops: how many nodes there are of each.
Trained Train(const SessionOptions& options, int steps,
              std::map<std::string, int>* ops = nullptr) {
  const bool half = HalfTypeOf(options.precision) == DType::kFloat16;
  const SmallResNet net(half);
  Session session(net.graph, options);
  session.Initialize();
  Trained trained;
  PreparedStep step = session.Prepare(
      {{net.images, {4, 8, 8, 3}}, {net.labels, {4}}}, {net.loss}, {net.train});
  std::vector<Tensor> results = step.MakeFetches();
  for (int i = 0; i < steps; ++i) {
    const Tensor images = Ramp({10, 4, 8, 8, 3}).Rows(i, i + 1);
    const Tensor labels = Tensor::Array<int64_t>({4}, {i % 5, 1, 2, 4});
    step.Run(std::vector<Tensor>{images.Reshaped({4, 8, 8, 3}), labels},
             results);
    trained.losses.push_back(results[0].At(0));
  }
  CHECK(step.info().why_not_captured == "");
  for (const StepInfo::Provider& node : step.info().providers) {
    if (ops != nullptr) ++(*ops)[node.op];
  }
  for (const Output& variable : net.graph.Variables()) {
    trained.variables[variable.name()] = session.Read(variable);
  }
  return trained;
}

void CheckClose(const Trained& got, const Trained& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(got.losses[i] ==
          doctest::Approx(wanted.losses[i]).epsilon(tolerance));
  }
  REQUIRE(got.variables.size() == wanted.variables.size());
  for (const auto& [name, value] : wanted.variables) {
    CAPTURE(name);
    const Tensor& other = got.variables.at(name);
    double error = 0, scale = 1e-3;
    for (int64_t i = 0; i < value.elements(); ++i) {
      error = std::max(error, std::abs(other.At(i) - value.At(i)));
      scale = std::max(scale, std::abs(value.At(i)));
    }
    CHECK(error <= tolerance * scale);
  }
}

TEST_CASE("a residual network trains as on the CPU") {
  SessionOptions cpu;
  for (bool fuse : {true, false}) {
    CAPTURE(fuse);
    SessionOptions gpu = OnGpu();
    cpu.fuse = gpu.fuse = fuse;
    CheckClose(Train(gpu, 4), Train(cpu, 4), 1e-4);
  }
}

TEST_CASE("half precisions train as on the CPU") {
  for (Precision precision : {Precision::kFloat16, Precision::kBFloat16}) {
    CAPTURE(NameOf(precision));
    SessionOptions cpu, gpu = OnGpu();
    cpu.precision = gpu.precision = precision;
    // Roundings differ: where a product is a sum in another order, by one unit.
    CheckClose(Train(gpu, 3), Train(cpu, 3),
               precision == Precision::kFloat16 ? 2e-2 : 1e-1);
  }
}

TEST_CASE("statistics by convolutions train as those of their results do") {
  SessionOptions plain = OnGpu();
  plain.precision = Precision::kFloat16;
  SessionOptions fused = plain;
  fused.fuse_statistics = true;
  std::map<std::string, int> ops;
  const Trained got = Train(fused, 4, &ops);
  CheckClose(got, Train(plain, 4), 2e-2);
  // Those of eight channels without strides; the first has three.
  CHECK(ops["OhwiConv2DWithSums"] == 2);
  CHECK(ops["BatchNormReluBySums"] + ops["BatchNormAddReluBySums"] == 2);
  SessionOptions cpu;
  cpu.precision = Precision::kFloat16;
  CheckClose(got, Train(cpu, 4), 2e-2);
  // float32 has no such plans.
  fused.precision = Precision::kFloat32;
  ops.clear();
  CheckClose(Train(fused, 2, &ops), Train({}, 2), 1e-4);
  CHECK(ops["OhwiConv2DWithSums"] == 0);
}

// A convolution of images of three channels in half, and the gradient of its
// filter; with `padded` the model itself gives both a fourth channel of zeros.
std::vector<Tensor> Convolve(bool padded, int64_t* nodes) {
  Graph graph;
  const Shape shape = {2, 9, 7, 3};
  const Output images = graph.Placeholder("images", DType::kFloat32, shape);
  const Output filter = graph.Variable("filter", CopyOf(Ramp({5, 5, 3, 8})));
  const Output y =
      Conv2D(padded ? Pad(images, {0, 0, 0, 0, 0, 0, 0, 1}) : images,
             padded ? Pad(filter, {0, 0, 0, 0, 0, 1, 0, 0}) : filter,
             {.strides = {2, 2}});
  const Output dfilter = Gradients({Sum(Square(y))}, {filter})[0];
  SessionOptions options = OnGpu();
  options.precision = Precision::kFloat16;
  options.deterministic = true;
  Session session(graph, options);
  session.Initialize();
  PreparedStep step = session.Prepare({{images, shape}}, {y, dfilter});
  std::vector<Tensor> results = step.MakeFetches();
  step.Run(std::vector<Tensor>{Ramp(shape)}, results);
  *nodes = step.info().nodes;
  return results;
}

TEST_CASE("images of three channels are convolved as of four, in half") {
  int64_t nodes = 0, nodes_padded = 0;
  const std::vector<Tensor> got = Convolve(false, &nodes);
  const std::vector<Tensor> wanted = Convolve(true, &nodes_padded);
  CHECK(nodes == nodes_padded - 2);  // what casts both pads them as well
  CHECK(got[0].BitEqual(wanted[0]));
  CHECK(got[1].BitEqual(wanted[1]));
}

std::map<std::string, Tensor> ToyCheckpoint(const std::string& log_dir,
                                            const SessionOptions& session,
                                            int64_t steps) {
  RunContext run = ToyRun(0);
  run.steps = steps;
  TrainingOptions options;
  options.log_dir = log_dir;
  options.session = session;
  Trainer(ToySpec(), run, options).Train();
  const auto checkpoint = CheckpointManager::Open(log_dir)
                              .ValueOrThrow()
                              .RestoreNewest()
                              .ValueOrThrow();
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& t : checkpoint->checkpoint.tensors) {
    by_name[t.name] = t.tensor;
  }
  return by_name;
}

// Their squares are one AddN of more terms than a launch takes.
TEST_CASE("many gradients are clipped by their norm as on the CPU") {
  constexpr int kVariables = 300;
  constexpr double kRate = 0.5;
  const auto trained = [&](const SessionOptions& options) {
    Graph graph;
    std::vector<Output> variables;
    for (int i = 0; i < kVariables; ++i) {
      variables.push_back(
          graph.Variable("v" + std::to_string(i),
                         CopyOf(Ramp({20}).Rows(i % 17, i % 17 + 3))));
    }
    const Output loss = Sum(Square(Concat(variables, 0) + 0.3));
    const Operation train = optimizers::Sgd(kRate)
                                .With(gradients::ClipByGlobalNorm(2))
                                .Minimize(loss);
    Session session(graph, options);
    session.Initialize();
    std::vector<double> moved;
    for (const Output& v : variables) {
      const Tensor before = session.Read(v);
      for (int64_t k = 0; k < 3; ++k) moved.push_back(-before.At(k));
    }
    session.Run({}, train);
    size_t at = 0;
    for (const Output& v : variables) {
      const Tensor after = session.Read(v);
      for (int64_t k = 0; k < 3; ++k) moved[at++] += after.At(k);
    }
    return moved;
  };
  const std::vector<double> got = trained(OnGpu()), wanted = trained({});
  double square = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
    square += got[i] * got[i];
  }
  CHECK(std::sqrt(square) == doctest::Approx(2 * kRate).epsilon(1e-4));
}

TEST_CASE("training on a GPU resumes bit for bit, and nearly as the CPU's") {
  const TemporaryFolder folder;
  const auto whole = ToyCheckpoint(folder / "whole", OnGpu(), 12);
  ToyCheckpoint(folder / "parts", OnGpu(), 5);
  const auto parts = ToyCheckpoint(folder / "parts", OnGpu(), 12);
  const auto cpu = ToyCheckpoint(folder / "cpu", SessionOptions(), 12);
  REQUIRE(whole.size() == parts.size());
  for (const auto& [name, value] : whole) {
    CAPTURE(name);
    CHECK(parts.at(name).BitEqual(value));
    for (int64_t i = 0; i < value.elements(); ++i) {
      CHECK(value.At(i) ==
            doctest::Approx(cpu.at(name).At(i)).epsilon(1e-4).scale(1));
    }
  }
}

// Pictures of which the brighter corner is the class.
Dataset Corners(const RunContext& run) {
  constexpr int64_t kPictures = 60;
  Tensor image(DType::kUInt8, {kPictures, 2, 2, 3});
  Tensor label(DType::kInt64, {kPictures});
  uint32_t state = run.training() ? 3 : 4;
  for (int64_t i = 0; i < kPictures; ++i) {
    label.data<int64_t>()[i] = i % 4;
    for (int64_t j = 0; j < 12; ++j) {
      state = state * 1664525u + 1013904223u;
      image.data<uint8_t>()[12 * i + j] =
          static_cast<uint8_t>((state >> 25) + (i % 4 == j / 3 ? 100 : 0));
    }
  }
  Dataset pictures =
      datasets::FromTensors({{"image", image}, {"label", label}});
  if (run.training()) pictures = pictures.Shuffle(kPictures, run.seed).Repeat();
  return pictures.Map(Standardize("image", {0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}))
      .Batch(run.batch_size)
      .Prefetch(2);
}

// What comes with each batch.
class BatchTypes : public Hook {
 public:
  explicit BatchTypes(std::set<DType>* types) : types_(types) {}
  void AfterStep(TrainingRun& run) override {
    types_->insert(run.batch()["image"].dtype());
  }

 private:
  std::set<DType>* types_;
};

TEST_CASE(
    "pictures are copied to a GPU as bytes, and trained on all the same") {
  TrainerSpec spec = {
      .name = "corners",
      .input = Corners,
      .model =
          [](Scope& scope, const Features& in, const RunContext&) {
            const Output logits = layers::Dense(
                scope / "logits", Reshape(in["image"], {-1, 12}), {.units = 4});
            return ModelSpec{
                .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
                .metrics = {{"accuracy", Accuracy(logits, in["label"])}},
                .exports = {{"probabilities", Softmax(logits)}}};
          },
      .optimizer = [](const RunContext&) { return optimizers::Sgd(0.1); }};
  RunContext run;
  run.batch_size = 7;  // the last of an evaluation is smaller
  run.steps = 40;
  const TemporaryFolder folder;
  struct Outcome {
    std::set<DType> types;
    double loss = 0;
  };
  const auto train = [&](const char* name, const SessionOptions& session) {
    Outcome outcome;
    Trainer trainer(spec, run, {.log_dir = folder / name, .session = session});
    trainer.AddHook(std::make_unique<BatchTypes>(&outcome.types));
    const TrainingResult result = trainer.Train();
    REQUIRE(result.evaluation);
    outcome.loss = *result.evaluation->Find("loss");
    trainer.Export(folder / name + "/model");
    return outcome;
  };
  const Outcome gpu = train("gpu", OnGpu()), cpu = train("cpu", {});
  CHECK(gpu.types == std::set{DType::kUInt8});
  CHECK(cpu.types == std::set{DType::kFloat32});
  CHECK(cpu.loss < 1.2);
  CHECK(gpu.loss == doctest::Approx(cpu.loss).epsilon(1e-4));
  // An exported model is the same wherever it was exported.
  const auto graph = [&](const char* name) {
    return FileSystem::Default()
        .Read(folder / name + "/model/graph.txt")
        .ValueOrThrow();
  };
  CHECK(graph("gpu") == graph("cpu"));
}

// What a training on the GPU tells its hooks of the loss.
class Losses : public Hook {
 public:
  Losses(bool wait, std::vector<double>* losses)
      : wait_(wait), losses_(losses) {}
  bool Measures(const TrainingRun&, int64_t step) const override {
    return step % 5 == 0;
  }
  void AfterStep(TrainingRun& run) override {
    const int64_t behind = run.step() - run.newest_loss().step;
    CHECK(behind == (Measures(run, run.step()) ? 0 : 1));
    if (wait_) losses_->push_back(run.loss());
    if (!wait_ && behind == 0) losses_->push_back(run.newest_loss().value);
    if (wait_) CHECK(run.newest_loss().step == run.step());
  }

 private:
  bool wait_;
  std::vector<double>* losses_;
};

TEST_CASE("a step is under way until its loss is asked for or it is measured") {
  const auto losses = [](bool wait) {
    std::vector<double> found;
    Trainer trainer(ToySpec(), ToyRun(2), {.session = OnGpu()});
    trainer.AddHook(std::make_unique<Losses>(wait, &found));
    trainer.Train();
    return found;
  };
  const std::vector<double> all = losses(true), some = losses(false);
  REQUIRE(all.size() == 20);
  CHECK(some == std::vector<double>{all[4], all[9], all[14], all[19]});
}

TEST_CASE("a loss that is no number names the first bad node") {
  const TrainerSpec spec = testing::TrappedSpec();
  const std::string error = testing::ErrorOf(
      [&] { Trainer(spec, ToyRun(5), {.session = OnGpu()}).Train(); });
  CHECK(testing::Contains(error, "step 14: the loss is"));
  // Where the logarithm is a part of a fused node, that one's name.
  CHECK(testing::Contains(error, "'trap/"));
  CHECK(testing::Contains(error, "' in step 14"));
}

TEST_CASE("nothing is saved of a step whose loss is no number") {
  const auto saved_after = [](double epochs, double evaluate_every) {
    const TemporaryFolder folder;
    const std::string error = testing::ErrorOf([&] {
      Trainer(testing::TrappedSpec(), ToyRun(epochs),
              {.log_dir = folder / "log",
               .evaluate_every = evaluate_every,
               .session = OnGpu()})
          .Train();
    });
    CHECK(testing::Contains(error, "step 14: the loss is"));
    return CheckpointManager::Open(folder / "log")
        .ValueOrThrow()
        .Steps()
        .ValueOrThrow();
  };
  // Neither when that step is evaluated, nor when it is the last.
  CHECK(saved_after(3, 1.4).empty());
  CHECK(saved_after(1.4, 0.5) == std::vector<int64_t>{5, 10});
}

}  // namespace
}  // namespace sluice
