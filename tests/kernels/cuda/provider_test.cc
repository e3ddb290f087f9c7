// Which kernel a node gets where a library refuses some of its cases: the next
// of the table, and that is what is said. A library that refuses at random
// stands in for cuDNN and cuBLASLt, which cannot be emulated.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "graph/builder.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::OnGpu;
using testing::Ramp;

constexpr const char* kOps[] = {"MatMul",
                                "MatMulBias",
                                "MatMulAdd",
                                "Conv2D",
                                "Conv2DBias",
                                "Conv2DBiasAdd",
                                "Conv2DBackpropInput",
                                "Conv2DBackpropFilter"};

// What the library does with a node.
enum class Answer { kTakes, kRefuses, kFails, kThrows };
std::function<Answer(const KernelSpec&)> answer;  // null: it is not there
std::set<std::string> computed;                   // nodes, by the library

// Our own kernel under another's name.
class LibraryKernel final : public Kernel {
 public:
  LibraryKernel(std::string node, KernelPtr own)
      : node_(std::move(node)), own_(std::move(own)) {}
  Status Run(const KernelContext& context) override {
    computed.insert(node_);
    return own_->Run(context);
  }
  size_t workspace_bytes() const override { return own_->workspace_bytes(); }

 private:
  std::string node_;
  KernelPtr own_;
};

Result<KernelPtr> MakeLibraryKernel(const KernelSpec& spec) {
  switch (answer(spec)) {
    case Answer::kRefuses:
      return Unimplemented("no engine for this");
    case Answer::kFails:
      return Internal("the library is broken");
    case Answer::kThrows:
      throw Error(Code::kUnimplemented, "no engine, and an exception");
    case Answer::kTakes:
      break;
  }
  for (const KernelDef* def : KernelTable::Global().KernelsOf(spec.op)) {
    if (def->device != DeviceType::kCuda || def->provider != "own") continue;
    SLUICE_ASSIGN_OR_RETURN(KernelPtr own, MakeKernel(*def, spec));
    return KernelPtr(
        std::make_unique<LibraryKernel>(spec.node, std::move(own)));
  }
  return Internal("there is no kernel of ours");
}

void RegisterLibrary() {
  [[maybe_unused]] static const bool registered = [] {
    for (const char* op : kOps) {
      KernelTable::Global().Register(
          {.op = op,
           .device = DeviceType::kCuda,
           .priority = 20,
           .provider = "library",
           .supports = [](const KernelSpec&) { return answer != nullptr; },
           .dtypes = DTypeSet(DType::kFloat32) | DType::kFloat16,
           .make = MakeLibraryKernel});
    }
    return true;
  }();
}

struct Network {
  Graph graph;
  Output images = graph.Placeholder("images", DType::kFloat32, {3, 6, 6, 4});
  Output labels = graph.Placeholder("labels", DType::kInt64, {3});
  Output loss;
  Operation train;

  Network() {
    const Scope scope(graph, "net");
    Output x = images;
    for (const char* name : {"a", "b", "c"}) {
      x = layers::Conv2D(scope / name, x,
                         {.filters = 4, .kernel = 3, .activation = Relu});
    }
    x = layers::Dense(scope / "hidden", layers::GlobalAvgPool(x),
                      {.units = 6, .activation = Relu});
    x = layers::Dense(scope / "logits", x, {.units = 3});
    loss = Mean(SparseSoftmaxCrossEntropy(x, labels));
    train = optimizers::Momentum(0.1, 0.9).Minimize(loss);
  }
};

struct Outcome {
  std::vector<double> losses;
  StepInfo info;
};
Outcome Train(const SessionOptions& options) {
  const Network net;
  Session session(net.graph, options);
  session.Initialize();
  PreparedStep step = session.Prepare(
      {{net.images, {3, 6, 6, 4}}, {net.labels, {3}}}, {net.loss}, {net.train});
  std::vector<Tensor> results = step.MakeFetches();
  Outcome outcome;
  for (int64_t i = 0; i < 3; ++i) {
    step.Run(std::vector<Tensor>{Ramp({3, 6, 6, 4}),
                                 Tensor::Array<int64_t>({3}, {i, 1, 2})},
             results);
    outcome.losses.push_back(results[0].At(0));
  }
  outcome.info = step.info();
  return outcome;
}

// A coin for each node that is the same whenever it is asked.
bool Coin(const std::string& node, uint64_t seed) {
  uint64_t hash = seed * 0x9e3779b97f4a7c15u + 1;
  for (char c : node) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return (hash >> 33) % 2 == 0;
}

TEST_CASE("what a library refuses is ours, right, and said to be") {
  if (testing::OnRealGpu()) return;
  RegisterLibrary();
  answer = nullptr;
  const Outcome cpu = Train({});
  int taken = 0, refused = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    computed.clear();
    answer = [seed](const KernelSpec& spec) {
      // An exception is the kernel's answer, as a returned status is.
      return Coin(spec.node, seed) ? Answer::kTakes
             : seed % 2 == 0       ? Answer::kRefuses
                                   : Answer::kThrows;
    };
    SessionOptions gpu = OnGpu();
    gpu.fuse = seed % 3 != 0;
    const Outcome outcome = Train(gpu);
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      CHECK(outcome.losses[i] == doctest::Approx(cpu.losses[i]).epsilon(1e-5));
    }
    std::map<std::string, std::map<std::string, int>> counts;
    size_t refusals = 0;
    for (const StepInfo::Provider& p : outcome.info.providers) {
      CAPTURE(p.node);
      ++counts[p.op][p.provider];
      CHECK_EQ(p.provider == "library", computed.contains(p.node));
      const bool asked =
          std::find(std::begin(kOps), std::end(kOps), p.op) != std::end(kOps);
      if (!asked) {
        CHECK_EQ(p.refused, "");
      } else if (Coin(p.node, seed)) {
        ++taken;
        CHECK_EQ(p.provider, "library");
        CHECK_EQ(p.refused, "");
      } else {
        ++refused;
        ++refusals;
        CHECK_EQ(p.provider, "own");
        CHECK_EQ(p.refused, seed % 2 == 0
                                ? "library: no engine for this"
                                : "library: no engine, and an exception");
      }
    }
    CHECK_EQ(outcome.info.providers.size(),
             static_cast<size_t>(outcome.info.nodes));
    CHECK(outcome.info.ProviderCounts() == counts);
    CHECK_EQ(outcome.info.Refusals().size(), refusals);
  }
  CHECK(taken > 20);
  CHECK(refused > 20);
  answer = nullptr;
}

TEST_CASE("an error of a library is no refusal") {
  if (testing::OnRealGpu()) return;
  RegisterLibrary();
  answer = [](const KernelSpec&) { return Answer::kFails; };
  const std::string message = ErrorOf([] { Train(OnGpu()); });
  answer = nullptr;
  CHECK(Contains(message, "Conv2D"));
  CHECK(Contains(message, "': the library is broken"));
}

TEST_CASE("where all kernels refuse, the best one's reason is the error") {
  const OpDef op = {.name = "TestRefused",
                    .doc = "Nobody computes it.",
                    .inputs = {{"x", "T"}},
                    .outputs = {{"y", "T"}},
                    .types = {{"T", kFloating}},
                    .shape = SameShape,
                    .gradient = NotDifferentiable};
  OpTable::Global().Register(op);
  for (int priority : {1, 2}) {
    KernelTable::Global().Register(
        {.op = "TestRefused",
         .priority = priority,
         .provider = priority == 1 ? "worse" : "better",
         .make = [priority](const KernelSpec&) -> Result<KernelPtr> {
           return Unimplemented(priority == 1 ? "not by me" : "nor by me");
         }});
  }
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y =
      graph.Add({.op = "TestRefused", .inputs = {x}, .name = "nobody"})
          .output(0);
  Session session(graph);
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{x, Ramp({2})}}, y);
                 }),
                 "TestRefused 'nobody': nor by me"));
}

}  // namespace
}  // namespace sluice
