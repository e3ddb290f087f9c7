// Passes: before/after text in tests/graph/passes/cases/*.txt, and what text
// cannot say.
//
//   # why this case
//   passes: refine; place /cpu:0 /cpu:1; partition
//   --- before
//   <graph>
//   --- after            or "--- after /cpu:0" for each part of a partition,
//   <graph>              or "--- error" and a piece of the message
#include "graph/passes/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/session/session.h"
#include "graph/text/text.h"
#include "tests/places.h"
#include "tests/support/described.h"

namespace sluice {
namespace {

struct Case {
  std::vector<std::vector<std::string>> passes;  // name, arguments
  std::map<std::string, std::string> sections;   // "before", "after /cpu:0"
};

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Case ReadCase(const std::filesystem::path& path) {
  Case read;
  std::ifstream file(path);
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("passes:")) {
      std::istringstream in(line.substr(7));
      for (std::string pass; std::getline(in, pass, ';');) {
        read.passes.push_back(Words(pass));
      }
    } else if (line.starts_with("--- ")) {
      section = line.substr(4);
      read.sections[section];
    } else if (!section.empty()) {
      read.sections[section] += line + "\n";
    }
  }
  return read;
}

// Runs one pass; the parts of a partition go to `parts`.
Status RunPass(const std::vector<std::string>& pass, Graph& graph,
               passes::Partitions* parts) {
  if (pass[0] == "partition") {
    *parts = passes::Partition(graph);
    return passes::Verify(*parts);
  }
  passes::Context context;
  context.fold = FoldNode;
  context.devices = pass.size() > 1
                        ? testing::Described({pass.begin() + 1, pass.end()})
                        : testing::DescribedIn(graph);
  for (const passes::Pass& known : passes::Pipeline()) {
    if (known.name == pass[0]) return known.run(graph, context);
  }
  return NotFound("no pass '" + pass[0] + "'");
}

std::string Canonical(const std::string& text) {
  Result<std::unique_ptr<Graph>> graph = ParseGraph(text);
  CHECK_MESSAGE(graph.ok(), graph.status().message());
  return graph.ok() ? PrintGraph(**graph) : "";
}

void CheckCase(const Case& wanted) {
  Result<std::unique_ptr<Graph>> graph =
      ParseGraph(wanted.sections.at("before"));
  REQUIRE_MESSAGE(graph.ok(), graph.status().message());
  passes::Partitions parts;
  Status status;
  for (const auto& pass : wanted.passes) {
    status = RunPass(pass, **graph, &parts);
    if (!status.ok()) break;
    const Status legal = passes::Verify(**graph);
    CHECK_MESSAGE(legal.ok(), pass[0] << ": " << legal.message());
  }
  if (auto it = wanted.sections.find("error"); it != wanted.sections.end()) {
    std::string message = it->second;
    message.pop_back();
    REQUIRE_FALSE(status.ok());
    INFO("error: " << status.message());
    CHECK(status.message().find(message) != std::string::npos);
    return;
  }
  REQUIRE_MESSAGE(status.ok(), status.message());
  if (parts.empty()) {
    CHECK_EQ(PrintGraph(**graph), Canonical(wanted.sections.at("after")));
    return;
  }
  CHECK_EQ(parts.size() + 1, wanted.sections.size());
  for (const auto& [device, part] : parts) {
    CAPTURE(device);
    CHECK_EQ(PrintGraph(*part),
             Canonical(wanted.sections.at("after " + device)));
  }
}

TEST_CASE("before and after") {
  std::set<std::filesystem::path> files;
  const auto folder =
      std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/graph/passes/cases";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.insert(entry.path());
  }
  REQUIRE_FALSE(files.empty());
  for (const auto& file : files) {
    SUBCASE(file.stem().c_str()) {
      CAPTURE(file.filename().string());
      CheckCase(ReadCase(file));
    }
  }
}

// A small network with a loss and its gradients, kept by fetches.
struct Network {
  Graph graph;
  Output image, label, loss;
  std::vector<Output> variables, gradients;
};

std::unique_ptr<Network> MakeNetwork() {
  auto network = std::make_unique<Network>();
  Graph& graph = network->graph;
  network->image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 3, 4});
  network->label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  const Output x = Reshape(network->image, {-1, 12});
  const Output w1 = graph.Variable("w1", Ones({12, 8}));
  const Output b1 = graph.Variable("b1", Zeros({8}));
  const Output w2 = graph.Variable("w2", Ones({8, 5}));
  const Output hidden = Relu((MatMul(x, w1) + b1) * 1.0 - 0.0);
  const Output logits = MatMul(Transpose(Transpose(hidden)), w2);
  network->loss = Mean(SparseSoftmaxCrossEntropy(logits, network->label)) +
                  0.1 * Sum(Square(-(-w1)));
  network->variables = {w1, b1, w2};
  network->gradients = Gradients({network->loss}, network->variables);
  int64_t index = 0;
  for (const Output& fetch : network->gradients) {
    graph.Add({"Fetch", {fetch}, {{"index", index++}}});
  }
  graph.Add({"Fetch", {network->loss}, {{"index", index}}});
  return network;
}

std::map<Output, Tensor> Values(const Graph& graph) {
  std::map<Output, Tensor> given;
  int64_t seed = 1;
  for (const char* name : {"image", "w1", "b1", "w2"}) {
    const Output output = graph.Get(name);
    Shape shape = output.shape();
    if (shape[0] == kUnknown) shape.set(0, 6);
    Tensor value(DType::kFloat32, shape);
    for (float& v : value.values<float>()) {
      seed = seed * 48271 % 2147483647;
      v = static_cast<float>(seed) / 1e9f - 1.f;
    }
    given[output] = value;
  }
  given[graph.Get("label")] = Tensor::Array<int64_t>({6}, {0, 4, 2, 2, 1, 3});
  return given;
}

std::vector<Tensor> EvaluateFetches(const Graph& graph) {
  const auto given = Values(graph);
  std::vector<Tensor> fetched(4);
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Fetch")) continue;
    fetched[node->attrs().Int("index")] =
        Evaluate(node->input(0), given).ValueOrThrow();
  }
  return fetched;
}

void Feed(Graph& graph, int64_t batch) {
  for (const char* name : {"image", "label"}) {
    Node* node = graph.Find(name);
    Shape shape = node->attrs().ShapeOf("shape");
    shape.set(0, batch);
    node->set_attr("shape", shape);
  }
}

TEST_CASE("optimised gradients have the same bits") {
  const auto network = MakeNetwork();
  const auto plain = network->graph.Clone();
  const auto optimised = network->graph.Clone();
  for (Graph* graph : {plain.get(), optimised.get()}) {
    Feed(*graph, 6);
    passes::Prune(*graph);
    for (Node* node : graph->TopologicalOrder()) {
      ThrowIfError(Graph::Infer(*node));
    }
  }
  ThrowIfError(passes::Refine(*optimised, FoldNode));
  passes::Simplify(*optimised);
  ThrowIfError(passes::Verify(*optimised));
  passes::MergeCommon(*optimised);
  passes::Prune(*optimised);
  ThrowIfError(passes::Verify(*optimised));
  CHECK(optimised->nodes().size() < plain->nodes().size() - 8);

  // The plain graph's shapes need constants, too.
  ThrowIfError(passes::Refine(*plain, FoldNode));
  const std::vector<Tensor> wanted = EvaluateFetches(*plain);
  const std::vector<Tensor> got = EvaluateFetches(*optimised);
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    CHECK(wanted[i].elements() > 0);
    CHECK(wanted[i].BitEqual(got[i]));
  }
}

TEST_CASE("attributes of 0 and -0 are two") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Tensor below = Tensor::Array<float>({2}, {-1, -2});
  for (const auto activation : {LeakyRelu, Elu}) {
    const std::vector<Output> fetches = {Reciprocal(activation(x, 0.0)),
                                         Reciprocal(activation(x, -0.0))};
    const std::vector<Tensor> y = Session(graph).Run({{x, below}}, fetches);
    for (int64_t i = 0; i < 2; ++i) {
      CHECK(y[0].At(i) == -INFINITY);  // 1 / (0 * -1)
      CHECK(y[1].At(i) == INFINITY);   // 1 / (-0 * -1)
    }
  }
}

// Each crossing goes to the device it names; positions in creation order.
TEST_CASE("parts run in creation order cannot deadlock") {
  const auto network = MakeNetwork();
  Graph& graph = network->graph;
  Feed(graph, 6);
  passes::Prune(graph);
  ThrowIfError(passes::Refine(graph, FoldNode));
  int i = 0;
  for (const auto& node : graph.nodes()) {
    node->set_device("/cpu:" + std::to_string(++i % 3));
  }
  ThrowIfError(
      passes::Place(graph, testing::Described({"/cpu:0", "/cpu:1", "/cpu:2"})));
  const passes::Partitions parts = passes::Partition(graph);
  ThrowIfError(passes::Verify(parts));
  REQUIRE_EQ(parts.size(), 3);

  // Devices that run their nodes strictly in creation order; a receiver waits
  // for the sender's start, and here a sender for the receiver's, too.
  std::map<std::string, size_t> next;
  std::set<std::string> sent;
  std::map<std::string, int> seen;
  size_t done = 0, total = 0;
  for (const auto& [device, part] : parts) total += part->nodes().size();
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& [device, part] : parts) {
      const std::vector<Node*> order = part->TopologicalOrder();
      while (next[device] < order.size()) {
        const Node& node = *order[next[device]];
        CHECK_EQ(&node, part->nodes()[next[device]].get());
        if (node.Is("SendStart")) sent.insert(node.attrs().String("key"));
        if (node.Is("RecvStart")) {
          CHECK_EQ(++seen[node.attrs().String("key")], 1);
        }
        if (node.Is("RecvWait") || node.Is("SendWait")) {
          const std::string& key = node.attrs().String("key");
          if (!sent.contains(key) || !seen.contains(key)) break;
        }
        ++next[device];
        ++done;
        moved = true;
      }
    }
  }
  CHECK_EQ(done, total);
  CHECK(sent.size() > 10);
}

// Tens of thousands of nodes: quadratic passes would take minutes, of the
// process's own time, which others on the cores do not add to.
constexpr double kMostSeconds = 30;
double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST_CASE("passes are near-linear") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {4});
  std::vector<Operation> updates;
  Output y = x;
  for (int i = 0; i < 2000; ++i) {
    DeviceScope device(graph, i % 2 ? "/cpu:1" : "/cpu:0");
    const Output v = graph.Variable("v" + std::to_string(i), Zeros({4}));
    y = (y * v + 0.5) * 1.0 - Neg(Neg(y));
    updates.emplace_back(AssignAdd(v, Exp(y) + x));
  }
  Group(graph, updates, std::string(passes::kTargets));
  const double begin = CpuSeconds();
  passes::Prune(graph);
  REQUIRE(graph.nodes().size() > 20'000);
  ThrowIfError(passes::Refine(graph, FoldNode));
  passes::Simplify(graph);
  passes::MergeCommon(graph);
  passes::Prune(graph);
  ThrowIfError(passes::Place(graph, testing::Described({"/cpu:0", "/cpu:1"})));
  ThrowIfError(passes::OrderVariables(graph));
  const passes::Partitions parts = passes::Partition(graph);
  const double seconds = CpuSeconds() - begin;
  MESSAGE("passes over " << graph.nodes().size() << " nodes took " << seconds
                         << " s");
  CHECK(seconds < kMostSeconds);
  CHECK_EQ(parts.size(), 2);
}

// Each product depends on all writes before it and reads what one of them
// wrote.
TEST_CASE("mixed precision is near-linear in a chain of writes") {
  Graph graph;
  constexpr int kWrites = 20'000;
  const Output next = graph.Placeholder("next", DType::kFloat32, {1, 1});
  Output y = next;
  for (int i = 0; i < kWrites; ++i) {
    const Output v = graph.Variable("v" + std::to_string(i), Zeros({1, 1}));
    const ControlScope scope(graph, {Assign(v, y)});
    y = MatMul(next, v);
  }
  const double begin = CpuSeconds();
  ThrowIfError(passes::MixPrecision(graph, DType::kFloat16));
  const double seconds = CpuSeconds() - begin;
  MESSAGE("mixed precision of " << kWrites << " writes took " << seconds
                                << " s");
  CHECK(seconds < kMostSeconds);
  const auto waiting = std::count_if(
      graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
        return node->Is("Cast") && node->control_inputs().size() == 1;
      });
  CHECK_EQ(waiting, kWrites);
}

TEST_CASE("what is sent of a shared variable is a copy") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({4}));
  const Output view = Reshape(v, {2, 2});
  const Output handle = AssignAdd(v, v * 0);
  const Output computed = Exp(v);
  const std::vector<Output> sent = {v, view, handle, computed};
  for (const auto& node : graph.nodes()) node->set_device("/cpu:0");
  for (const Output& x : sent) (-x).node().set_device("/cpu:1");
  for (const auto& node : graph.nodes()) {
    if (node->device().empty()) node->set_device("/cpu:1");  // constants
  }
  for (const bool shares : {false, true}) {
    CAPTURE(shares);
    DeviceDescriptions devices = testing::Described({"/cpu:0", "/cpu:1"});
    devices[0].shares_variables = shares;
    const passes::Partitions parts = passes::Partition(graph, devices);
    CHECK(passes::Verify(parts).ok());
    int copies = 0, sends = 0;
    for (const auto& node : parts.at("/cpu:0")->nodes()) {
      if (!node->Is("SendStart")) continue;
      ++sends;
      const Node& from = node->input(0).node();
      copies += from.Is("Copy") ? 1 : 0;
      // What was computed cannot change.
      if (from.Is("Exp")) --sends;
    }
    CHECK(sends == 3);
    CHECK(copies == (shares ? 3 : 0));
  }
}

}  // namespace
}  // namespace sluice
