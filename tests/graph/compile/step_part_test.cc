// The two halves of planning: a step that is cut without a device at hand, sent
// as text and compiled elsewhere computes the same bits.
#include "graph/compile/step_part.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "engine/runtime/executor.h"
#include "engine/runtime/local_rendezvous.h"
#include "graph/builder.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/lower.h"
#include "graph/session/session.h"
#include "graph/session/step_builder.h"
#include "models/optim/optimizers.h"
#include "models/zoo/mnist_networks.h"
#include "models/zoo/resnet.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using Devices = std::vector<std::unique_ptr<Device>>;

// Training of a network on two devices.
struct Training {
  Graph graph;
  Output image, label, loss;
  Operation train;
  std::vector<Operation> initializers;

  template <typename Network>
  Training(const Network& network, const Shape& images) {
    image = graph.Placeholder("image", DType::kFloat32, images);
    label = graph.Placeholder("label", DType::kInt64, {images[0]});
    loss = Mean(SparseSoftmaxCrossEntropy(network(Scope(graph), image), label));
    train = optimizers::Momentum(0.1, 0.9).Minimize(loss);
    // Layers in turn; an optimizer's slots stay beside their variable.
    std::map<std::string, size_t> layers;
    for (const Output& variable : graph.Variables()) {
      const std::string& name = variable.node().name();
      const std::string layer = name.substr(0, name.find('/'));
      const size_t index = layers.emplace(layer, layers.size()).first->second;
      variable.node().set_device(index % 2 == 0 ? "/cpu:0" : "/cpu:1");
    }
    for (Node* node : graph.Initializers()) initializers.emplace_back(node);
  }
};

Devices OpenCpus(int count) {
  Devices devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back(Device::Open({DeviceType::kCpu, i}).ValueOrThrow());
  }
  return devices;
}

// A worker: has the text of its parts and nothing of the graph.
class Worker {
 public:
  Worker(const std::vector<std::string>& parts, Devices& devices) {
    for (const std::string& text : parts) {
      const StepPart part = ParsePart(text).ValueOrThrow();
      edges_ = part.edges;
      CHECK(part.parts == static_cast<int>(parts.size()));
      for (const auto& device : devices) {
        if (device->name().ToString() != part.device) continue;
        plans_.push_back(
            std::make_unique<Plan>(Compile(part, *device).ValueOrThrow()));
        arenas_.push_back(std::make_unique<Arena>(device->memory()));
        executors_.push_back(std::make_unique<Executor>(*plans_.back(), *device,
                                                        *arenas_.back()));
      }
    }
    REQUIRE(executors_.size() == parts.size());
  }

  void Run(std::vector<void*> feeds, std::vector<void*> fetches,
           uint64_t step) {
    const auto never = std::chrono::steady_clock::time_point::max();
    const RunKey run = rendezvous_.NewRun();
    stop_.Begin(&rendezvous_, run, never);
    std::vector<std::thread> threads;  // each part holds its own
    for (size_t i = 0; i < plans_.size(); ++i) {
      threads.emplace_back([&, i] {
        StepContext context;
        context.seed = plans_[i]->seed;
        context.step = step;
        context.exchange = *rendezvous_.Join(
            run, edges_, static_cast<int>(plans_.size()), never);
        (void)executors_[i]
            ->Run({feeds, fetches, 0}, context, stop_, nullptr)
            .ok();
        rendezvous_.Leave(run);
      });
    }
    for (std::thread& thread : threads) thread.join();
    stop_.End();
    ThrowIfError(stop_.stopped() ? stop_.status() : Status());
  }

 private:
  int edges_ = 0;
  LocalRendezvous rendezvous_;
  StepStop stop_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

// A step cut by descriptions that were written down, as text.
struct Texts {
  std::vector<std::string> parts;
  StepParts cut;

  Texts(const Graph& graph, const StepRequest& request, const Devices& devices,
        const StepSettings& settings) {
    passes::Context context;
    for (const auto& device : devices) {
      context.devices.push_back(
          DeviceDescription::Parse(DescribeDevice(*device).ToText())
              .ValueOrThrow());
    }
    context.fold = FoldNode;
    context.half = HalfTypeOf(settings.precision);
    cut = PartitionStep(ExtractStep(graph, request).ValueOrThrow(), context,
                        settings)
              .ValueOrThrow();
    for (const StepPart& part : cut.parts) {
      parts.push_back(PrintPart(part));
      CHECK(PrintPart(ParsePart(parts.back()).ValueOrThrow()) == parts.back());
    }
  }
};

Tensor Uniform(const Shape& shape) {
  std::mt19937 random(5);
  Tensor t(DType::kFloat32, shape);
  for (float& v : t.values<float>()) {
    v = std::uniform_real_distribution<float>(0, 1)(random);
  }
  return t;
}

void CheckSameBits(Training& training, const Shape& images,
                   const StepSettings& settings) {
  const Tensor image = Uniform(images);
  Tensor label(DType::kInt64, {images[0]});
  for (int64_t i = 0; i < images[0]; ++i) {
    label.data<int64_t>()[i] = i % 10;
  }
  SessionOptions options;
  options.devices = {"/cpu:0", "/cpu:1"};
  options.deterministic = settings.deterministic;
  options.precision = settings.precision;
  options.executor = settings.executor;
  options.seed = settings.seed;
  Session session(training.graph, options);
  session.Initialize();

  Devices devices = OpenCpus(2);
  const Texts first(training.graph, {{}, {}, training.initializers}, devices,
                    settings);
  Worker(first.parts, devices).Run({}, {}, 0);
  const StepRequest request = {
      {{training.image, images}, {training.label, {images[0]}}},
      {training.loss},
      {training.train}};
  const Texts step(training.graph, request, devices, settings);
  CHECK(step.parts.size() == 2);
  CHECK(step.cut.parts[0].edges > 2);
  Worker worker(step.parts, devices);
  Tensor loss(DType::kFloat32, {});
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor wanted =
        session.Run({{training.image, image}, {training.label, label}},
                    training.loss, {training.train});
    worker.Run({const_cast<void*>(image.raw()), label.raw()}, {loss.raw()}, i);
    CHECK(loss.BitEqual(wanted));
  }
  for (const Output& variable : training.graph.Variables()) {
    const Variable* found = nullptr;
    for (const auto& device : devices) {
      if (auto* here = device->variables().Find(variable.node().origin())) {
        found = here;
      }
    }
    REQUIRE(found != nullptr);
    CHECK(found->value.BitEqual(session.Read(variable)));
  }
}

TEST_CASE("parts of MNIST's training step go through text") {
  const Shape images = {8, 28, 28, 1};
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16}) {
    for (const bool deterministic : {false, true}) {
      Training training(
          [](const Scope& scope, const Output& x) {
            return MnistNetwork(scope, "cnn", x, /*training=*/true);
          },
          images);
      CheckSameBits(training, images,
                    {deterministic, precision, ExecutorMode::kAuto, 17});
    }
  }
}

TEST_CASE("parts of ResNet-20's training step go through text") {
  const Shape images = {4, 32, 32, 3};
  Training training(
      [](const Scope& scope, const Output& x) {
        return ResNet(scope, "resnet20", x, {.classes = 10, .training = true});
      },
      images);
  CheckSameBits(training, images, {.seed = 3});
}

TEST_CASE("damaged text of a part is refused or makes some Plan") {
  const Shape images = {2, 28, 28, 1};
  Training training(
      [](const Scope& scope, const Output& x) {
        return MnistNetwork(scope, "mlp", x, /*training=*/true);
      },
      images);
  Devices devices = OpenCpus(2);
  const Texts texts(training.graph,
                    {{{training.image, images}, {training.label, {2}}},
                     {training.loss},
                     {training.train}},
                    devices, {});
  std::vector<std::string> parts;
  for (const std::string& text : texts.parts) {
    StepPart part = ParsePart(text).ValueOrThrow();
    part.incarnation =
        9876543210987654321u;  // the device's is another each run
    parts.push_back(PrintPart(part));
  }
  std::mt19937 random(11);
  int refused = 0, compiled = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = parts[i % parts.size()];
    for (int changes = 1 + i % 3; changes-- > 0;) {
      const size_t at = random() % text.size();
      if (i % 2 == 0) {
        // Another digit: numbers of feeds and edges, dimensions, attributes.
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit != text.npos) {
          text[digit] = static_cast<char>('0' + random() % 10);
        }
      } else {
        text.erase(at, random() % 40);
      }
    }
    Result<StepPart> part = ParsePart(text);
    Devices fresh = OpenCpus(1);
    if (part.ok()) part->incarnation = 0;  // any
    if (part.ok() && Compile(*part, *fresh[0]).ok()) {
      ++compiled;
    } else {
      ++refused;
    }
  }
  CHECK(refused > 200);
  CHECK(compiled > 20);
}

TEST_CASE("settings of a part survive its text") {
  StepPart part;
  part.device = "/gpu:3";
  part.incarnation = ~uint64_t{0};
  part.edges = 7;
  part.parts = 3;
  part.settings = {true, Precision::kTf32, ExecutorMode::kDataflow,
                   ~uint64_t{0}};
  part.graph = std::make_unique<Graph>();
  const StepPart read = ParsePart(PrintPart(part)).ValueOrThrow();
  CHECK(read.device == part.device);
  CHECK(read.incarnation == part.incarnation);
  CHECK(read.edges == 7);
  CHECK(read.parts == 3);
  CHECK(read.settings.deterministic);
  CHECK(read.settings.precision == Precision::kTf32);
  CHECK(read.settings.executor == ExecutorMode::kDataflow);
  CHECK(read.settings.seed == ~uint64_t{0});
}

std::string Changed(std::string text, std::string_view from,
                    std::string_view to) {
  const size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("a part is for one incarnation of its device") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Devices devices = OpenCpus(1);
  const Texts texts(graph, {{{x, {2}}}, {Exp(x)}, {}}, devices, {});
  const StepPart part = ParsePart(texts.parts[0]).ValueOrThrow();
  CHECK(part.incarnation == devices[0]->incarnation());
  CHECK(Compile(part, *devices[0]).ok());
  const Devices reopened = OpenCpus(1);
  const Status gone = Compile(part, *reopened[0]).status();
  CHECK(gone.code() == Code::kFailedPrecondition);
  CHECK(Contains(gone.message(), "of '/cpu:0', which is gone"));
}

TEST_CASE("texts that are no part") {
  StepPart empty;
  empty.graph = std::make_unique<Graph>();
  const std::string good = PrintPart(empty);
  CHECK(ParsePart(good).ok());
  const std::string receives =
      "r = RecvStart() {key = \"k\", dtype = int8, shape = [1], edge = 0}\n";
  CHECK(ParsePart(Changed(good, "\"edges\":0", "\"edges\":2") + receives +
                  "s = RecvWait(r) {key = \"k\", edge = 0}\n")
            .ok());
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("{}\n"),
        std::string("x = Relu(y)\n"), std::string("[1]\n"), good + "x = ?\n",
        good + "x = Placeholder() {dtype = float32, shape = [2]}\n",
        good + "_feed_x = Placeholder() {dtype = float32, shape = [2]}\n",
        good + "_feed_9999999 = Placeholder() {dtype = float32, shape = []}\n",
        good + "_feed_0 = Placeholder() {dtype = float32, shape = [?]}\n",
        good + "c = Const() {value = float32[] {1}}\n"
               "f = Fetch(c) {index = 1048576}\n",
        good +
            "c = Const() {value = float32[] {1}}\nf = Fetch(c) {index = -1}\n",
        good + "c = Const() {value = float32[] {1}}\n"
               "s = SendStart(c) {key = \"k\", edge = 0}\n"
               "t = SendWait(s) {key = \"k\", edge = 0}\n",
        good + "r = RecvStart() {key = \"k\", dtype = int8, shape = [1]}\n"
               "s = RecvWait(r) {key = \"k\"}\n",
        // A wait for another edge than the start's; two of one number.
        Changed(good, "\"edges\":0", "\"edges\":2") + receives +
            "s = RecvWait(r) {key = \"k\", edge = 1}\n",
        Changed(good, "\"edges\":0", "\"edges\":2") + receives +
            "s = RecvWait(r) {key = \"k\", edge = 0, sender = 1}\n",
        Changed(good, "\"edges\":0", "\"edges\":2") + receives +
            "s = RecvWait(r) {key = \"k\", edge = 0}\n"
            "t = RecvStart() {key = \"l\", dtype = int8, shape = [1], edge = "
            "0}\n"
            "u = RecvWait(t) {key = \"l\", edge = 0}\n",
        Changed(good, "\"device\":\"\"", "\"device\":7"),
        Changed(good, "\"fp32\"", "\"fp7\""),
        Changed(good, "\"auto\"", "\"fast\""),
        Changed(good, "\"edges\":0", "\"edges\":-1"),
        Changed(good, "\"edges\":0", "\"edges\":4294967296"),
        Changed(good, "\"parts\":1", "\"parts\":0"),
        Changed(good, "\"incarnation\":0", "\"incarnation\":\"\"")}) {
    CAPTURE(bad);
    CHECK_FALSE(ParsePart(bad).ok());
  }
}

// Every field of the JSON object in `text` becomes every one of these: it is
// refused, or kept as it is, never rounded, wrapped or cut.
void CheckReadExactlyOrRefused(
    const std::string& text,
    const std::function<Result<std::string>(const std::string&)>& reprint) {
  using Json = nlohmann::json;
  const Json good = Json::parse(text);
  int kept = 0, refused = 0;
  // The object with one field as given, literally, or without it.
  const auto with = [&](const std::string& field, const std::string& value) {
    std::string changed;
    for (const auto& item : good.items()) {
      const bool here = item.key() == field;
      if (here && value.empty()) continue;
      changed += changed.empty() ? "" : ",";
      changed += Json(item.key()).dump() + ":";
      changed += here ? value : item.value().dump();
    }
    return "{" + changed + "}";
  };
  for (const auto& field : good.items()) {
    for (const char* value : {"-1",
                              "0",
                              "1",
                              "1.0",
                              "1.5",
                              "-0.0",
                              "9223372036854775807",
                              "9223372036854775808",
                              "18446744073709551615",
                              "18446744073709551616",
                              "5.17e19",
                              "-9223372036854775808",
                              "-9223372036854775809",
                              "1e300",
                              "true",
                              "null",
                              "\"7\"",
                              "[]",
                              "{}",
                              "[1]",
                              "{\"MatMul\":[1]}",
                              "{\"MatMul\":1}"}) {
      const std::string changed = with(field.key(), value);
      CAPTURE(changed);
      const Result<std::string> printed = reprint(changed);
      if (printed.ok()) {
        // As text: comparing numbers would round them.
        CHECK(Json::parse(*printed)[field.key()].dump() == value);
        ++kept;
      } else {
        ++refused;
      }
    }
    CHECK_FALSE(reprint(with(field.key(), "")).ok());
  }
  CHECK(kept > 10);
  CHECK(refused > 10);
}

TEST_CASE("numbers of a part and of a device are read exactly or refused") {
  StepPart part;
  part.graph = std::make_unique<Graph>();
  CheckReadExactlyOrRefused(
      PrintPart(part), [](const std::string& head) -> Result<std::string> {
        SLUICE_ASSIGN_OR_RETURN(const StepPart read, ParsePart(head + "\n"));
        const std::string printed = PrintPart(read);
        return printed.substr(0, printed.find('\n'));
      });
  const Devices devices = OpenCpus(1);
  CheckReadExactlyOrRefused(DescribeDevice(*devices[0]).ToText(),
                            [](const std::string& text) -> Result<std::string> {
                              SLUICE_ASSIGN_OR_RETURN(
                                  const DeviceDescription read,
                                  DeviceDescription::Parse(text));
                              return read.ToText();
                            });
}

TEST_CASE("a part for a device that is not there is an error") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y = Exp(x);
  y.node().set_device("/cpu:1");
  Devices devices = OpenCpus(2);
  Texts texts(graph, {{{x, {2}}}, {y}, {}}, devices, {});
  devices.pop_back();
  const Status lacking = CompileParts(texts.cut.parts, devices).status();
  CHECK(lacking.code() == Code::kNotFound);
  CHECK(Contains(lacking.message(), "'/cpu:1', which is not open here"));
  CHECK(Contains(lacking.message(), "Fetch '"));
}

TEST_CASE("a description of a device survives its text") {
  const auto device = Device::Open({DeviceType::kCpu, 2}).ValueOrThrow();
  const DeviceDescription described = DescribeDevice(*device);
  CHECK(described.incarnation == device->incarnation());
  CHECK(described.kernels.at("MatMul").Contains(DType::kFloat32));
  CHECK_FALSE(described.kernels.at("MatMul").Contains(DType::kBool));
  CHECK_FALSE(described.kernels.contains("NoSuchOp"));
  const Result<DeviceDescription> read =
      DeviceDescription::Parse(described.ToText());
  REQUIRE(read.ok());
  CHECK(read->ToText() == described.ToText());
  CHECK(read->name == "/cpu:2");
  CHECK(read->incarnation == described.incarnation);
  for (const char* bad : {"", "{}", "[]", "{\"name\":\"/tpu:0\"}"}) {
    const Result<DeviceDescription> parsed = DeviceDescription::Parse(bad);
    CHECK_FALSE(parsed.ok());
  }
  const auto another = Device::Open({DeviceType::kCpu, 2}).ValueOrThrow();
  CHECK(another->incarnation() != device->incarnation());
}

TEST_CASE("a part has at most 256 MiB of text") {
  StepPart part;
  part.graph = std::make_unique<Graph>();
  std::string text = PrintPart(part) + "#";
  text.resize(size_t{256} << 20, ' ');
  CHECK(ParsePart(text).status().ToString() == "ok");
  text += ' ';
  const Status more = ParsePart(text).status();
  CHECK(more.code() == Code::kInvalidArgument);
  CHECK(
      Contains(more.message(), "268435457 bytes of text, of at most 2684354"));
}

}  // namespace
}  // namespace sluice
