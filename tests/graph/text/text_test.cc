// The text form of graphs: what is printed reads back the same, bit for bit,
// and no text crashes the reader.
#include "graph/text/text.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/passes/passes.h"
#include "tests/support/described.h"
#include "tests/support/op_probe.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

std::unique_ptr<Graph> Parse(const std::string& text) {
  return ParseGraph(text).ValueOrThrow();
}

// Checks that two graphs are equal in all that the text form keeps.
void CheckEqual(const Graph& a, const Graph& b) {
  const std::vector<Node*> left = a.TopologicalOrder();
  const std::vector<Node*> right = b.TopologicalOrder();
  REQUIRE_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    const Node& x = *left[i];
    const Node& y = *right[i];
    CAPTURE(x.Describe());
    CHECK_EQ(x.name(), y.name());
    CHECK_EQ(x.origin(), y.origin());
    CHECK_EQ(&x.op(), &y.op());
    CHECK_EQ(x.device(), y.device());
    CHECK(x.attrs() == y.attrs());
    CHECK(x.output_types() == y.output_types());
    REQUIRE_EQ(x.num_inputs(), y.num_inputs());
    for (int j = 0; j < x.num_inputs(); ++j) {
      CHECK_EQ(x.input(j).name(), y.input(j).name());
    }
    REQUIRE_EQ(x.control_inputs().size(), y.control_inputs().size());
    for (size_t j = 0; j < x.control_inputs().size(); ++j) {
      CHECK_EQ(x.control_inputs()[j]->name(), y.control_inputs()[j]->name());
    }
  }
}

void CheckRoundTrip(const Graph& graph) {
  const std::string text = PrintGraph(graph);
  CAPTURE(text);
  const auto again = Parse(text);
  CheckEqual(graph, *again);
  CHECK_EQ(PrintGraph(*again), text);
}

TEST_CASE("a line says it all") {
  Graph graph;
  const Output x = graph.Placeholder("image", DType::kFloat32, {kUnknown, 784});
  const Operation ready = NoOp(graph, {}, "ready");
  NameScope scope(graph, "fc1");
  const Output w = graph.Variable("weights", Zeros({784, 10}));
  ControlScope after(graph, {ready});
  DeviceScope device(graph, "/cpu:1");
  const Output y = MatMul(x, w);
  y.node().set_origin("old/name");
  const std::string text = PrintGraph(graph);
  CHECK(text.find("image = Placeholder() {dtype = float32, shape = [?,784]} : "
                  "float32[?,784]\n") != std::string::npos);
  CHECK(text.find("fc1/mat_mul = MatMul(image, fc1/weights, ^ready) "
                  "{transpose_a = false, transpose_b = false} : "
                  "float32[?,10] @ /cpu:1 from old/name\n") !=
        std::string::npos);
  CheckRoundTrip(graph);
}

TEST_CASE("a model with its gradients") {
  Graph graph;
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 8, 8, 1});
  const Output label = graph.Placeholder("label", DType::kInt64, {kUnknown});
  const Output filter = graph.Variable("filter", Ones({3, 3, 1, 4}));
  const Output w = graph.Variable("w", Ones({64, 10}));
  Output x = Relu(Conv2D(image, filter));
  x = MaxPool(x, {.window = {2, 2}, .strides = {2, 2}});
  const Output loss =
      Mean(SparseSoftmaxCrossEntropy(MatMul(Reshape(x, {-1, 64}), w), label));
  const auto gradients = Gradients({loss}, {filter, w});
  AssignSub(filter, 0.1 * gradients[0]);
  AssignSub(w, 0.1 * gradients[1]);
  CheckRoundTrip(graph);
}

template <typename T>
void CheckTensor(const Shape& shape, std::initializer_list<T> values) {
  Graph graph;
  graph.Constant(Tensor::Array<T>(shape, values));
  CheckRoundTrip(graph);
}

TEST_CASE("tensors keep every bit") {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  CheckTensor<float>({6}, {0.1f, -0.f, Float::denorm_min(), Float::max(),
                           Float::infinity(), -Float::infinity()});
  CheckTensor<float>({2}, {Float::quiet_NaN(), -Float::quiet_NaN()});
  CheckTensor<float>({1}, {std::bit_cast<float>(0x7fc12345u)});
  CheckTensor<float>({1}, {std::bit_cast<float>(0x7f800001u)});
  CheckTensor<double>({4}, {0.1, -0.0, Double::denorm_min(), Double::max()});
  CheckTensor<double>({}, {1.0 / 3});
  CheckTensor<Half>({3}, {Half(0.1f), Half(65504.f), Half(6e-8f)});
  CheckTensor<BFloat16>({2}, {BFloat16(0.1f), BFloat16(3e38f)});
  CheckTensor<int8_t>({2}, {-128, 127});
  CheckTensor<uint8_t>({2}, {0, 255});
  CheckTensor<int32_t>({2, 1}, {std::numeric_limits<int32_t>::min(), 7});
  CheckTensor<int64_t>({2}, {std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max()});
  CheckTensor<bool>({3}, {true, false, true});
  CheckTensor<float>({0, 3}, {});
}

TEST_CASE("large tensors are printed in base64, equal elements once") {
  Graph graph;
  for (int64_t n : {40, 41, 42, 1000}) {
    Tensor random(DType::kFloat32, {n});
    std::mt19937 bits(static_cast<uint32_t>(n));
    for (float& v : random.values<float>())
      v = std::bit_cast<float>(static_cast<uint32_t>(bits()));
    graph.Constant(random);
    Tensor bytes(DType::kUInt8, {n});
    for (uint8_t& v : bytes.values<uint8_t>()) {
      v = static_cast<uint8_t>(bits());
    }
    graph.Constant(bytes);
  }
  graph.Constant(Tensor::Full(DType::kFloat32, {50, 50}, 0.1));
  graph.Constant(Tensor::Full(DType::kBool, {50}, 1));
  CheckRoundTrip(graph);
  CHECK(PrintGraph(graph).find("float32[50,50] {0.1 ...}") !=
        std::string::npos);

  // A vector of RFC 4648.
  Graph foobar;
  Tensor six(DType::kUInt8, {36});
  for (int i = 0; i < 36; ++i) six.data<uint8_t>()[i] = "foobar"[i % 6];
  foobar.Constant(six);
  std::string wanted = "base64 \"";
  for (int i = 0; i < 6; ++i) wanted += "Zm9vYmFy";
  CHECK(PrintGraph(foobar).find(wanted + "\"") != std::string::npos);
}

TEST_CASE("bools as bytes") {
  const auto graph = Parse("y = Const() {value = bool[3] base64 \"AAEA\"}\n");
  const Tensor* const value = ConstantValue(graph->Get("y"));
  REQUIRE(value != nullptr);
  CHECK(value->BitEqual(Tensor::Array<bool>({3}, {false, true, false})));
}

TEST_CASE("names and devices of any characters") {
  Graph graph;
  const Output x = graph.Placeholder("a b", DType::kFloat32, {2});
  const Output y = Identity(x, "tab\tquote\"back\\slash\nline\x01#:1");
  const Output z = Identity(y, "from");
  z.node().set_device("my device");
  z.node().set_origin("\xc3\xa4");
  y.node().AddControlInput(&x.node());
  graph.Add({"SendStart", {z}, {{"key", "a;b:0 \"^\""}}});
  CheckRoundTrip(graph);
}

TEST_CASE("whitespace, comments and defaults are free") {
  const auto graph = Parse(
      "# a graph\n"
      "\n"
      "x=Placeholder(){dtype=float32,shape=[2,3]} # fed\r\n"
      "  y = MatMul(x,   # broken lines\n"
      "      x) { transpose_b = true,\n"
      "    transpose_a = false } : float32 [2 , 2]\n"
      "n = NoOp(^y, ^y)");
  CHECK_EQ(graph->nodes().size(), 3);
  CHECK_EQ(graph->Get("y").shape(), Shape{2, 2});
  CHECK_EQ(graph->Find("n")->control_inputs().size(), 1);
  CHECK_EQ(Parse("")->nodes().size(), 0);
}

TEST_CASE("types may say more than inference") {
  const auto graph = Parse(
      "x = Placeholder() {dtype = float32, shape = [?]} : float32[?]\n"
      "y = Neg(x) : float32[7]\n");
  CHECK_EQ(graph->Get("y").shape(), Shape{7});
  CheckRoundTrip(*graph);
}

TEST_CASE("what passes leave reads back") {
  const auto graph = Parse(
      "v = Variable() {dtype = float32, shape = []} @ /cpu:0\n"
      "one = Const() {value = float32[] {1}}\n"
      "old = Neg(v) @ /cpu:1\n"
      "w = AssignAdd(v, one) @ /cpu:0\n"
      "z = Sub(w, old) @ /cpu:1\n"
      "f = Fetch(z) {index = 0}\n");
  ThrowIfError(passes::Refine(*graph, FoldNode));
  ThrowIfError(passes::Place(*graph, testing::Described({"/cpu:0", "/cpu:1"})));
  ThrowIfError(passes::OrderVariables(*graph));
  CheckRoundTrip(*graph);
  for (const auto& [device, part] : passes::Partition(*graph)) {
    CheckRoundTrip(*part);
  }
}

TEST_CASE("every op of the table reads back, and is what passes may see") {
  for (const OpDef* op : OpTable::Global().All()) {
    if (!testing::NeedsProbe(*op)) continue;
    for (const Probe& probe : op->probes) {
      CAPTURE(std::string(op->name));
      const testing::ProbeCase c =
          testing::MakeProbeCase(*op, probe, testing::WidestBinding(*op));
      CHECK(passes::Verify(*c.graph).ok());
      CheckRoundTrip(*c.graph);
    }
  }
}

TEST_CASE("ops that were renamed are read by their former names") {
  int renamed = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    if (op->former_name == nullptr) continue;
    ++renamed;
    CHECK(OpTable::Global().Find(op->former_name) == nullptr);
    CHECK(OpTable::Global().FindInText(op->former_name) == op);
  }
  CHECK(renamed >= 3);
  const std::string now =
      "x = Placeholder() {dtype = float32, shape = [2,6]} : float32[2,6]\n"
      "y = TileGrad(x) {multiples = [1,3]} : float32[2,2]\n";
  std::string before = now;
  before.replace(before.find("TileGrad"), 8, "TileGradient");
  CHECK(PrintGraph(*Parse(before)) == now);
  CHECK(!ParseGraph("x = TileGradien()\n").ok());
}

TEST_CASE("numbers are exact integers, or floats") {
  for (const char* number : {"9007199254740993", "-9223372036854775808"}) {
    const std::string line =
        fmt::format("y = Pad(x) {{paddings = [1, 1], value = {}}}", number);
    const auto graph =
        Parse("x = Placeholder() {dtype = int64, shape = [2]}\n" + line);
    CHECK(PrintGraph(*graph).find(std::string("value = ") + number + "}") !=
          std::string::npos);
    CHECK(passes::Verify(*graph).ok());
  }
  const auto graph = Parse(
      "x = Placeholder() {dtype = float32, shape = [2]}\n"
      "y = Clip(x) {lo = -inf, hi = 2.5}\n"
      "z = Clip(x) {lo = -0, hi = 1e300}\n");
  CHECK(graph->Get("y").node().attrs().NumberOf("hi").real() == 2.5);
  CHECK(std::signbit(graph->Get("z").node().attrs().NumberOf("lo").real()));
  CheckRoundTrip(*graph);
}

TEST_CASE("errors say where and what was wanted") {
  struct Bad {
    const char* text;
    const char* message;
  };
  const std::string x = "x = Placeholder() {dtype = float32, shape = [2,3]}\n";
  const Bad cases[] = {
      {"y", "line 2, column 2: wanted '='"},
      {"y = ", "line 2, column 5: wanted an op's name"},
      {"y = Nog(x)", "line 2, column 8: unknown op 'Nog'"},
      {"y = Neg(x", "line 2, column 10: wanted ')'"},
      {"y = Neg(z)", "there is no node 'z' in the lines before"},
      {"y = Neg(x:1)", "Placeholder 'x' has 1 outputs, no output 1"},
      {"y = Neg(x:-1)", "no output -1"},
      {"y = Neg(^x, x)", "wanted '^' after '^'"},
      {"x = Neg(x)", "there is a node 'x' already"},
      {"\"\" = Neg(x)", "the name is empty"},
      {"y = Neg(x) z", "line 2, column 12: wanted the end of the line"},
      {"y = Neg(x, x)", "Neg 'y': 2 inputs given, wanted 1 (line 2)"},
      {"y = Neg(x) {a = 1}", "Neg has no attribute 'a'"},
      {"y = MatMul(x, x) {transpose_a = 1}", "'1' is no bool"},
      {"y = MatMul(x, x)", "inner dimensions differ: a=[2,3] b=[2,3]"},
      {"y = MatMul(x, x) {transpose_a = true, transpose_a = true}",
       "'transpose_a' is given twice"},
      {"y = Neg(x) : float64[2,3]", "is float64[2,3], inference says float32"},
      {"y = Neg(x) : float32[2,4]", "inference says float32[2,3]"},
      {"y = Neg(x) : float32[2,3], float32[2]", "1 outputs, 2 types given"},
      {"y = Neg(x) : float31[2,3]", "unknown dtype 'float31'"},
      {"y = Placeholder() {dtype = float32, shape = [-2]}",
       "a dimension is negative"},
      {"y = Placeholder() {dtype = float32, shape = [1,1,1,1,1,1,1,1,1]}",
       "more than 8 dimensions"},
      {"y = Placeholder() {dtype = float32, shape = [99999999999999999999]}",
       "wanted an integer"},
      {"y = Placeholder() {dtype = float32, shape = [4611686018427387904,4]}",
       "2^47"},
      {"y = Placeholder() {dtype = float32}", "attribute 'shape'"},
      {"y = Const() {value = float32[2] {1}}", "1 elements for a tensor"},
      {"y = Const() {value = float32[?] {1}}", "no tensor has the shape [?]"},
      {"y = Const() {value = int8[0,16777216,16777216] {}}",
       "no tensor has the shape"},
      {"y = Const() {value = float32[] {x}}", "'x' is no float32"},
      {"y = Const() {value = int8[] {128}}", "'128' is no int8"},
      {"y = Const() {value = bool[] {2}}", "'2' is no bool"},
      {"y = Const() {value = float32[99999999999] {0 ...}}", "too large"},
      {"y = Const() {value = float32[4611686018427387904] {0 ...}}",
       "no tensor has the shape"},
      {"y = Const() {value = float32[1] base64 \"AAA=\"}",
       "wanted the base64 of 4 bytes"},
      {"y = Const() {value = float32[1] base64 \"AAA*AA==\"}", "base64"},
      {"y = Const() {value = float32[99999999999] base64 \"AAAA\"}",
       "wanted the base64 of 399999999996 bytes"},
      {"y = Const() {value = bool[1] base64 \"Ag==\"}",
       "a bool is neither 0 nor 1"},
      {"y = Const() {value = bool[3] base64 \"AAH/\"}",
       "a bool is neither 0 nor 1"},
      {"y = Const() {value = float32[1]}", "wanted '{' or base64"},
      {"y = SendStart(x) {key = \"a", "the string does not end in this line"},
      {"y = SendStart(x) {key = \"\\q\"}", "wanted one of"},
      {"y = Neg(x) @", "wanted a device"},
      {"y = Neg(x) from", "wanted the origin's name"},
  };
  for (const Bad& bad : cases) {
    CAPTURE(bad.text);
    const auto graph = ParseGraph(x + bad.text);
    REQUIRE_FALSE(graph.ok());
    INFO(graph.status().message());
    CHECK_EQ(graph.status().code(), Code::kInvalidArgument);
    CHECK(graph.status().message().find(bad.message) != std::string::npos);
    CHECK(graph.status().message().find("line 2") != std::string::npos);
    CHECK(graph.status().message().find('\n') == std::string::npos);
  }
}

// Truncations and random damage end in a graph or an error, not in a crash.
TEST_CASE("damaged text") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output w = graph.Variable("w", Zeros({4, 2}));
  const Output y = Reshape(MatMul(x, w), {-1, 1, 2});
  graph.Constant(Tensor::Array<double>({2}, {0.1, -1e300}));
  graph.Constant(Tensor::Full(DType::kInt32, {40}, 3));
  graph.Add({"SendStart", {y}, {{"key", "k\n"}}});
  const std::string text = PrintGraph(graph);
  int accepted = 0;
  for (size_t n = 0; n <= text.size(); ++n) {
    accepted += ParseGraph(text.substr(0, n)).ok();
  }
  CHECK(accepted >= static_cast<int>(graph.nodes().size()));
  std::mt19937 random(1);
  constexpr char kAlphabet[] = "(){}[],=:^@#\"\\.?-0129abx/ \n";
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (uint32_t k = 1 + random() % 3; k > 0; --k) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = kAlphabet[random() % (sizeof(kAlphabet) - 1)];
          break;
        case 1:
          damaged.erase(at, random() % 4);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), 5));
      }
    }
    const auto parsed = ParseGraph(damaged);
    if (parsed.ok()) CheckRoundTrip(**parsed);
  }
}

TEST_CASE("Graphviz") {
  const auto graph = Parse(
      "x = Placeholder() {dtype = float32, shape = [2]} @ /cpu:0\n"
      "\"a\\\"b\" = Neg(x) @ /cpu:1\n"
      "n = NoOp(^x)\n");
  const std::string dot = PrintDot(*graph);
  CHECK(dot.find("digraph {") == 0);
  CHECK(dot.find("n1 [label=\"Neg\\na\\\"b\\n/cpu:1\"") != std::string::npos);
  CHECK(dot.find("n0 -> n1 [label=\"float32[2]\"]") != std::string::npos);
  CHECK(dot.find("n0 -> n2 [style=dashed]") != std::string::npos);
}

// By a text of as many lines, which is quickly made and read.
TEST_CASE("a graph has at most a million nodes") {
  if (testing::kSanitized) return;  // it takes gigabytes
  constexpr size_t kMost = size_t{1} << 20;
  std::string text;
  for (size_t i = 0; i < kMost; ++i) text += fmt::format("n{} = NoOp()\n", i);
  CHECK(Parse(text)->nodes().size() == kMost);
  text += "more = NoOp()\n";
  const Status more = ParseGraph(text).status();
  CHECK(more.code() == Code::kInvalidArgument);
  CHECK(more.message() ==
        "line 1048577, column 1: a graph has at most 1048576 nodes");
}

}  // namespace
}  // namespace sluice
