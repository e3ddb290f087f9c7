// The table of a network, beside counts by hand and by a loop over the
// architecture.
#include "models/cli/model_summary.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <sstream>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/nn/layers.h"
#include "models/zoo/mnist_networks.h"
#include "models/zoo/resnet.h"
#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using NetworkFn =
    std::function<ModelSpec(Scope& scope, const Features& in, bool training)>;

// Of a training of the network on batches of `examples` black images. A null
// device plans and does not compute, so large networks take milliseconds here.
std::string Summary(const NetworkFn& network, const Shape& image,
                    int64_t examples, const TrainingOptions& options = {}) {
  TrainerSpec spec;
  spec.name = "summary";
  spec.input = [&](const RunContext& run) {
    Shape batch = {examples};
    for (const int64_t d : image) batch.push_back(d);
    Dataset data = datasets::FromTensors(
        {{"image", Tensor::Full(DType::kFloat32, batch, 0)},
         {"label", Tensor::Full(DType::kInt64, {examples}, 0)}});
    if (run.training()) data = data.Repeat();
    return data.Batch(run.batch_size);
  };
  spec.model = [&](Scope& scope, const Features& in, const RunContext& run) {
    return network(scope, in, run.training());
  };
  RunContext run;
  run.batch_size = examples;
  TrainingOptions planned = options;
  planned.session.devices = {"/null:0"};
  return SummaryOf(TrainingRun(spec, run, planned));
}

ModelSpec Classifier(const Output& logits, const Features& in) {
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .exports = {{"probabilities", Softmax(logits)}}};
}

NetworkFn Mnist(const std::string& model) {
  return [model](Scope& scope, const Features& in, bool training) {
    return Classifier(MnistNetwork(scope, model, in["image"], training), in);
  };
}

NetworkFn Residual(const std::string& model, int64_t classes) {
  return [=](Scope& scope, const Features& in, bool training) {
    return Classifier(ResNet(scope, model, in["image"],
                             {.classes = classes, .training = training}),
                      in);
  };
}

// --- Reading it --------------------------------------------------------------

struct Row {
  std::string name, op, output;
  int64_t parameters = 0, multiply_adds = 0;
};

int64_t NumberOf(std::string text) {
  if (text == "-") return 0;
  std::erase(text, ',');
  return std::stoll(text);
}

// The rows below the heading.
std::vector<Row> RowsOf(const std::string& summary) {
  std::istringstream lines(summary);
  std::string line;
  std::getline(lines, line);
  std::vector<Row> rows;
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream cells(line);
    Row row;
    std::string parameters, multiply_adds;
    cells >> row.name >> row.op >> row.output >> parameters >> multiply_adds;
    row.parameters = NumberOf(parameters);
    row.multiply_adds = NumberOf(multiply_adds);
    rows.push_back(row);
  }
  return rows;
}

// "fc1 MatMul [100,128]", a line each.
std::string LayersOf(const std::string& summary) {
  std::string text;
  for (const Row& row : RowsOf(summary)) {
    text += row.name + " " + row.op + " " + row.output + "\n";
  }
  return text;
}

Row Find(const std::string& summary, const std::string& name) {
  for (const Row& row : RowsOf(summary)) {
    if (row.name == name) return row;
  }
  FAIL("no row '", name, "' in:\n", summary);
  return {};
}

void CheckWidth(const std::string& summary) {
  std::istringstream lines(summary);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
  }
}

struct Counts {
  int64_t trainable = 0, statistics = 0, multiply_adds = 0;
};

// In the totals and as sums of the columns.
void CheckTotals(const std::string& summary, const Counts& wanted) {
  Counts sums;
  for (const Row& row : RowsOf(summary)) {
    sums.trainable += row.parameters;
    sums.multiply_adds += row.multiply_adds;
  }
  CHECK(sums.trainable == wanted.trainable + wanted.statistics);
  CHECK(sums.multiply_adds == wanted.multiply_adds);
  std::string plain = summary;
  std::erase(plain, ',');
  CHECK(Contains(
      plain, fmt::format("\nparameters     {}: {} trainable {} not\n"
                         "multiply-adds  {} for one example forward\n",
                         wanted.trainable + wanted.statistics, wanted.trainable,
                         wanted.statistics, wanted.multiply_adds)));
}

// --- The zoo's networks ------------------------------------------------------

TEST_CASE("the table of mnist's cnn, by hand") {
  // 28 * 28 * 32 * (5 * 5 * 1), 14 * 14 * 64 * (5 * 5 * 32), 3136 * 1024, ...
  const std::string table =
      "layer       op       output          parameters  multiply-adds\n"
      "conv1       Conv2D   [100,28,28,32]         832        627,200\n"
      "max_pool    MaxPool  [100,14,14,32]           -              -\n"
      "conv2       Conv2D   [100,14,14,64]      51,264     10,035,200\n"
      "max_pool_1  MaxPool  [100,7,7,64]             -              -\n"
      "reshape     Reshape  [100,3136]               -              -\n"
      "fc1         MatMul   [100,1024]       3,212,288      3,211,264\n"
      "logits      MatMul   [100,10]            10,250         10,240\n"
      "\n"
      "parameters     3,274,634: 3,274,634 trainable, 0 not\n"
      "multiply-adds  13,883,904 for one example, forward\n"
      "memory         arena ";
  const std::string summary = Summary(Mnist("cnn"), {28, 28, 1}, 100);
  CHECK(summary.substr(0, table.size()) == table);
  // Adam keeps two numbers for each parameter.
  CHECK(
      summary.ends_with(" MB (step of 100 examples), variables 39.3 MB (the "
                        "model's 13.1 MB)"));
}

TEST_CASE("an example costs as much where virtual workers share a batch") {
  const auto costs_of = [](const std::string& summary) {
    std::string text;
    for (const Row& row : RowsOf(summary)) {
      // What the loss of several waits for is listed, too.
      if (row.name.starts_with("gradients/")) continue;
      text += fmt::format("{} {}\n", row.name, row.multiply_adds);
    }
    return text;
  };
  for (const int64_t examples : {100, 26}) {
    const std::string one = Summary(Mnist("cnn"), {28, 28, 1}, examples);
    const std::string shared =
        Summary(Mnist("cnn"), {28, 28, 1}, examples, {.virtual_workers = 4});
    CHECK(costs_of(shared) == costs_of(one));
    // Whose arena that is.
    if (examples == 100) CHECK(Contains(shared, "(step of 25 examples)"));
  }
}

TEST_CASE("networks of dense layers, for one example") {
  const std::string softmax = Summary(Mnist("softmax"), {28, 28, 1}, 1);
  CHECK(LayersOf(softmax) == "reshape Reshape [1,784]\nlogits MatMul [1,10]\n");
  CheckTotals(softmax, {.trainable = 7850, .multiply_adds = 7840});
  const std::string mlp = Summary(Mnist("mlp"), {28, 28, 1}, 7);
  CHECK(LayersOf(mlp) ==
        "reshape Reshape [7,784]\nfc1 MatMul [7,128]\nfc2 MatMul [7,32]\n"
        "logits MatMul [7,10]\n");
  CheckTotals(mlp, {.trainable = 785 * 128 + 129 * 32 + 33 * 10,
                    .multiply_adds = 784 * 128 + 128 * 32 + 32 * 10});
}

// Adds a convolution and its normalisation; returns the side of its output.
int64_t AddConv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                int64_t side, Counts* counts) {
  side = (side + stride - 1) / stride;
  counts->trainable += kernel * kernel * in * out + 2 * out;
  counts->statistics += 2 * out;
  counts->multiply_adds += side * side * kernel * kernel * in * out;
  return side;
}

TEST_CASE("resnet50 has the figures that torchvision gives") {
  Counts wanted;
  int64_t side = AddConv(3, 64, 7, 2, 224, &wanted) / 2;
  int64_t in = 64;
  for (const auto& [blocks, width] :
       {std::pair<int64_t, int64_t>{3, 64}, {4, 128}, {6, 256}, {3, 512}}) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t stride = block == 0 && width > 64 ? 2 : 1;
      if (block == 0) AddConv(in, 4 * width, 1, stride, side, &wanted);
      side = AddConv(in, width, 1, 1, side, &wanted);
      side = AddConv(width, width, 3, stride, side, &wanted);
      side = AddConv(width, 4 * width, 1, 1, side, &wanted);
      in = 4 * width;
    }
  }
  wanted.trainable += 2048 * 1000 + 1000;
  wanted.multiply_adds += 2048 * 1000;
  // The loop itself, against what is published: 4.09 G.
  CHECK(wanted.trainable == 25'557'032);
  CHECK(wanted.statistics == 53'120);
  CHECK(wanted.multiply_adds == 4'089'184'256);

  const std::string summary =
      Summary(Residual("resnet50", 1000), {224, 224, 3}, 2);
  CheckTotals(summary, wanted);
  CheckWidth(summary);
  // 53 convolutions and normalisations, two poolings and a dense layer.
  CHECK(RowsOf(summary).size() == 2 * 53 + 2 + 1);
  CHECK(LayersOf(summary).starts_with(
      "conv1 Conv2D [2,112,112,64]\nbn1 BatchNorm [2,112,112,64]\n"
      "max_pool MaxPool [2,56,56,64]\n"
      "layer1/0/conv1 Conv2D [2,56,56,64]\n"));
}

TEST_CASE("resnet20, whose shortcuts have no parameters") {
  Counts wanted;
  int64_t side = AddConv(3, 16, 3, 1, 32, &wanted), in = 16;
  for (const int64_t width : {16, 32, 64}) {
    for (int block = 0; block < 3; ++block) {
      side = AddConv(in, width, 3, in == width ? 1 : 2, side, &wanted);
      side = AddConv(width, width, 3, 1, side, &wanted);
      in = width;
    }
  }
  wanted.trainable += 65 * 10;
  wanted.multiply_adds += 64 * 10;
  CHECK(wanted.trainable == 269'722);  // 0.27 M in the paper

  const std::string summary = Summary(Residual("resnet20", 10), {32, 32, 3}, 8);
  CheckTotals(summary, wanted);
  CHECK(Contains(LayersOf(summary),
                 "layer2/0/bn2 BatchNorm [8,16,16,32]\n"
                 "layer2/0/downsample/strided_slice StridedSlice "
                 "[8,16,16,16]\n"
                 "layer2/0/downsample/pad Pad [8,16,16,32]\n"
                 "layer2/1/conv1 Conv2D [8,16,16,32]\n"));

  // What is computed again in the backward pass is not of the forward one.
  const std::string frugal = Summary(Residual("resnet20", 10), {32, 32, 3}, 8,
                                     {.recompute = Recompute::kAll});
  CHECK(LayersOf(frugal) == LayersOf(summary));
  CheckTotals(frugal, wanted);
  CHECK(frugal != summary);  // the arena is smaller
}

// --- Other networks ----------------------------------------------------------

TEST_CASE("convolutions of other kinds count what they multiply") {
  const auto network = [](Scope& scope, const Features& in, bool) {
    Output x = layers::Conv2D(scope / "grouped", in["image"],
                              {.filters = 8, .kernel = 3, .groups = 2});
    {
      const NameScope names(scope / "depthwise");
      x = DepthwiseConv2D(
          x, scope.graph().Variable("filter", Zeros({3, 5, 8, 2})));
    }
    {
      const NameScope names(scope / "up");
      const Output filter =
          scope.graph().Variable("filter", Zeros({2, 2, 3, 16}));
      const Output shape =
          scope.graph().Constant(Tensor::Array<int64_t>({4}, {5, 12, 20, 3}));
      x = Conv2DBackpropInput(x, filter, shape, {.strides = {2, 2}});
    }
    return Classifier(layers::GlobalAvgPool(x), in);
  };
  const std::string summary = Summary(network, {6, 10, 4}, 5);
  CHECK(Find(summary, "grouped").multiply_adds == 6 * 10 * 8 * 3 * 3 * 2);
  CHECK(Find(summary, "depthwise").multiply_adds == 6 * 10 * 16 * 3 * 5);
  const Row up = Find(summary, "up");
  CHECK(up.output == "[5,12,20,3]");
  // Every element of the input goes to 2 x 2 pixels of 3 channels.
  CHECK(up.multiply_adds == 6 * 10 * 16 * 2 * 2 * 3);
  // Behind the last layer, but exported.
  CHECK(Find(summary, "mean").output == "[5,3]");
}

TEST_CASE("layers without a scope, of several ops, and beside the loss") {
  const auto network = [](Scope& scope, const Features& in, bool) {
    Graph& graph = scope.graph();
    const Output x = in["image"];  // [n, 4, 6]
    const Output scores = BatchMatMul(x, x, {.transpose_b = true});
    const Output weights = graph.Variable("weights", Zeros({16, 3}));
    const Output bias = graph.Variable("bias", Zeros({3}));
    Output y = MatMul(layers::Flatten(Relu(scores)), weights) + bias;
    Output penalty;
    {
      // Two products, the larger one second, and a third that is no example's.
      const NameScope names(scope / "block");
      const Output narrow = graph.Variable("narrow", Zeros({3, 2}));
      const Output wide = graph.Variable("wide", Zeros({2, 5}));
      y = Tanh(MatMul(MatMul(Relu(y), narrow), wide));
      graph.Variable("unread", Zeros({7}), {.trainable = false});
      penalty = Mean(Square(MatMul(narrow, wide)));
    }
    graph.Variable("temperature", Ones({}));
    const Output step = Cast(GlobalStep(graph), DType::kFloat32);
    // Of the loss alone: shapes change, nothing is multiplied.
    penalty = penalty + Mean(Square(weights)) + step * Mean(Square(y));
    return ModelSpec{.loss = penalty +
                             Mean(SparseSoftmaxCrossEntropy(y, in["label"]))};
  };
  const std::string summary = Summary(network, {4, 6}, 10);
  CHECK(LayersOf(summary) ==
        "batch_mat_mul BatchMatMul [10,4,4]\n"
        "reshape Reshape [10,16]\n"
        "weights MatMul [10,3]\n"
        "bias Add [10,3]\n"
        "block MatMul [10,5]\n"
        "temperature - -\n");
  CHECK(Find(summary, "batch_mat_mul").multiply_adds == 4 * 4 * 6);
  CHECK(Find(summary, "weights").multiply_adds == 16 * 3);
  CHECK(Find(summary, "block").multiply_adds == 3 * 2 + 2 * 5);
  CHECK(Find(summary, "block").parameters == 6 + 10 + 7);
  CheckTotals(summary, {.trainable = 48 + 3 + 16 + 1,
                        .statistics = 7,
                        .multiply_adds = 96 + 48 + 16});
}

TEST_CASE("what begins with random numbers, and a table that is read twice") {
  const auto network = [](Scope& scope, const Features& in, bool) {
    Graph& graph = scope.graph();
    const Output noise = RandomNormal(graph, ShapeOf(in["image"]));
    const Output words =
        graph.Constant(Tensor::Array<int64_t>({6}, {0, 1, 2, 3, 4, 5}));
    const Output embedded =
        layers::Embedding(scope / "words", words, {.size = 8, .dimensions = 3});
    const Output x = layers::Dense(
        scope / "fc", layers::Flatten(noise + embedded), {.units = 3});
    return Classifier(
        MatMul(x, graph.Get("words/table"), {.transpose_b = true}), in);
  };
  const std::string summary = Summary(network, {6, 3}, 5);
  CHECK(LayersOf(summary) ==
        "words Gather [6,3]\n"
        "reshape Reshape [5,18]\n"
        "fc MatMul [5,3]\n"
        "mat_mul MatMul [5,8]\n");
  CheckTotals(summary,
              {.trainable = 8 * 3 + 19 * 3, .multiply_adds = 18 * 3 + 3 * 8});
}

TEST_CASE("long names are shortened in the middle") {
  const std::string first(60, 'a'), second(60, 'z');
  const auto network = [&](Scope& scope, const Features& in, bool) {
    Output x = layers::Flatten(in["image"]);
    x = layers::Dense(scope / first / second, x, {.units = 1000});
    return Classifier(layers::Dense(scope / "logits", x, {.units = 3}), in);
  };
  const std::string summary = Summary(network, {100, 100, 3}, 2);
  CheckWidth(summary);
  const std::string name = RowsOf(summary)[1].name;
  CHECK(name.starts_with("aaaaaaaaaa"));
  CHECK(Contains(name, "a...z"));
  CHECK(name.ends_with("zzzzzzzzzz"));
  CHECK(summary.find('\n') == 100);  // the table is as wide as it may be
}

TEST_CASE("it is of any training, on the CPU too") {
  const TrainerSpec spec = testing::ToySpec();
  const std::string summary =
      SummaryOf(TrainingRun(spec, testing::ToyRun(1), {}));
  CHECK(LayersOf(summary) ==
        "fc1 MatMul [25,16]\nnorm BatchNorm [25,16]\nlogits MatMul [25,3]\n");
  CheckTotals(summary, {.trainable = 4 * 16 + 2 * 16 + 17 * 3,
                        .statistics = 2 * 16,
                        .multiply_adds = 3 * 16 + 16 * 3});
}

}  // namespace
}  // namespace sluice
