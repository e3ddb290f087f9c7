// Building graphs: names, scopes, inference, and errors that name op, node,
// shapes and the caller's line.
#include "graph/graph.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <source_location>
#include <type_traits>
#include <utility>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// "graph_test.cc:<line>" of `offset` lines after the call.
std::string Here(int offset = 0, std::source_location location =
                                     std::source_location::current()) {
  return "(graph_test.cc:" + std::to_string(location.line() + offset) + ")";
}

Output Input(Graph& graph, const Shape& shape, DType dtype = DType::kFloat32) {
  return graph.Placeholder("x", dtype, shape);
}

// --- Names and scopes --------------------------------------------------------

TEST_CASE("names are in snake case, scoped and unique") {
  Graph graph;
  const Output x = Input(graph, {2, 2});
  CHECK_EQ(Neg(x).name(), "neg");
  CHECK_EQ(Neg(x).name(), "neg_1");
  CHECK_EQ(LeakyRelu(x).name(), "leaky_relu");
  CHECK_EQ(graph.Placeholder("neg", DType::kFloat32, {}).name(), "neg_2");
  {
    NameScope fc1(graph, "fc1");
    CHECK_EQ(graph.scope(), "fc1/");
    CHECK_EQ(Neg(x).name(), "fc1/neg");
    NameScope inner(graph, "inner");
    CHECK_EQ(Identity(x, "copy").name(), "fc1/inner/copy");
    {
      NameScope exactly(Scope(graph) / "a" / "b");
      CHECK_EQ(Identity(x, "copy").name(), "a/b/copy");
    }
    CHECK_EQ(Identity(x, "copy").name(), "fc1/inner/copy_1");
  }
  CHECK_EQ(graph.scope(), "");
  // A suffix that a user has taken is skipped.
  Identity(x, "y_1");
  CHECK_EQ(Identity(x, "y").name(), "y");
  CHECK_EQ(Identity(x, "y").name(), "y_2");
}

TEST_CASE("scopes end with an exception") {
  Graph graph;
  const Output x = Input(graph, {2, 3});
  CHECK_FALSE(ErrorOf([&] {
                NameScope name(graph, "s");
                DeviceScope device(graph, "/cpu:1");
                ControlScope after(graph, {x});
                LocationScope location(graph, "model.cc:1");
                MatMul(x, x);
              }).empty());
  const Node& node = Neg(x).node();
  CHECK_EQ(node.name(), "neg");
  CHECK_EQ(node.device(), "");
  CHECK(node.control_inputs().empty());
  CHECK(node.location().starts_with("graph_test.cc:"));
}

TEST_CASE("outputs of two graphs with one number are two keys") {
  Graph one, other;
  const Output a = Input(one, {2}), b = Input(other, {2});
  REQUIRE_EQ(a.node().id(), b.node().id());
  CHECK_EQ(std::set<Output>{a, b, a}.size(), 2);
  CHECK((a < b) != (b < a));
}

TEST_CASE("devices and control edges of a scope") {
  Graph graph;
  const Output x = Input(graph, {2});
  const Output a = Neg(x), b = Exp(x);
  DeviceScope cpu1(graph, "/cpu:1");
  CHECK_EQ(Neg(x).node().device(), "/cpu:1");
  {
    DeviceScope anywhere(graph, "");
    CHECK_EQ(Neg(x).node().device(), "");
  }
  ControlScope after_a(graph, {a});
  const Node& one = Neg(x).node();
  REQUIRE_EQ(one.control_inputs().size(), 1);
  CHECK_EQ(one.control_inputs()[0], &a.node());
  {
    ControlScope after_b(graph, {b, a});
    CHECK_EQ(Neg(x).node().control_inputs().size(), 2);
  }
  CHECK_EQ(Neg(x).node().control_inputs().size(), 1);
  // A variable and its first value wait for nothing.
  const Output v = graph.Variable("v", Zeros({2}));
  CHECK(graph.Initializers().at(0)->control_inputs().empty());
  CHECK(v.node().control_inputs().empty());
  CHECK_EQ(v.node().device(), "/cpu:1");
  CHECK_EQ(Neg(x).node().control_inputs().size(), 1);
  // Also where its first value cannot be made.
  CHECK_THROWS(graph.Variable("w", {DType::kFloat32, {2}, [](Graph&) -> Output {
                                      throw std::runtime_error(
                                          "no first value");
                                    }}));
  CHECK_EQ(Neg(x).node().control_inputs().size(), 1);

  Node& node = Neg(x).node();
  node.AddControlInput(&node);
  node.AddControlInput(&a.node());
  CHECK_EQ(node.control_inputs().size(), 1);
}

TEST_CASE("look-up by name") {
  Graph graph;
  const Output x = Input(graph, {4});
  NameScope scope(graph, "tower");
  const std::vector<Output> halves = Split(x, 2);
  CHECK_EQ(halves[1].name(), "tower/split:1");
  CHECK(graph.Get("tower/split:1") == halves[1]);
  CHECK(graph.Get("tower/split") == halves[0]);
  CHECK_EQ(graph.Find("split"), nullptr);
  CHECK(Contains(ErrorOf([&] { graph.Get("split"); }),
                 "the graph has no node 'split'; did you mean 'tower/split'?"));
  graph.Placeholder("labels", DType::kInt64, {4});
  CHECK(Contains(ErrorOf([&] { graph.Get("tower/lables"); }),
                 "no node 'tower/lables'; did you mean 'tower/labels'?"));
  CHECK(Contains(ErrorOf([&] { OpTable::Global().Get("Matmul"); }),
                 "unknown op 'Matmul'; did you mean 'MatMul'"));
  CHECK(Contains(ErrorOf([&] { OpTable::Global().Get("Frobnicate"); }),
                 "unknown op 'Frobnicate'; `sluice ops` lists them"));
  CHECK(Contains(ErrorOf([&] { graph.Get("tower/split:2"); }),
                 "Split 'tower/split' has 2 outputs, no 'tower/split:2'"));
  for (const char* index : {"x", "", "-1", " 1", "+1", "1x", "4294967297"}) {
    const std::string name = std::string("tower/split:") + index;
    CHECK(Contains(ErrorOf([&] { graph.Get(name); }), "no '" + name + "'"));
  }
  // A colon of a node's own.
  const Output fed = graph.Placeholder("fed:0", DType::kFloat32, {4});
  CHECK(graph.Get("tower/fed:0") == fed);
  CHECK(graph.Get("tower/fed:0:0") == fed);
  // Which is no output's, as long as the other has none of that number.
  const Output one = graph.Placeholder("split:2", DType::kFloat32, {4});
  CHECK(graph.Get("tower/split:2") == one);
  graph.Placeholder("split:1", DType::kFloat32, {4});
  CHECK(Contains(ErrorOf([&] { graph.Get("tower/split:1"); }),
                 "'tower/split:1' is the name of Placeholder 'tower/split:1'"));
  CHECK(Contains(ErrorOf([&] { graph.Get("tower/split:1"); }),
                 "and of output 1 of Split 'tower/split' (graph_test.cc:"));
  graph.Placeholder("split:0", DType::kFloat32, {4});
  CHECK(graph.Get("tower/split") == halves[0]);
  CHECK(graph.Get("tower/split:0").node().IsPlaceholder());
}

TEST_CASE("variables and their first values") {
  Graph graph;
  NameScope scope(graph, "fc1");
  const Output w = graph.Variable("weights", Zeros({2, 3}));
  const Output n =
      graph.Variable("count", Zeros({}, DType::kInt64), {.trainable = false});
  CHECK_EQ(w.name(), "fc1/weights");
  CHECK_EQ(graph.Variables(), std::vector<Output>{w, n});
  CHECK_EQ(graph.TrainableVariables(), std::vector<Output>{w});
  REQUIRE_EQ(graph.Initializers().size(), 2);
  CHECK_EQ(graph.Initializers()[0]->name(), "fc1/weights/init/assign");
  CHECK(graph.Initializers()[0]->input(0) == w);
  const std::string taken =
      ErrorOf([&] { graph.Variable("weights", Zeros({1})); });
  CHECK(Contains(taken,
                 "there is a node 'fc1/weights' already; give the variable "
                 "another name or scope, or share it (ReuseVariables) "));
  const std::string line = Here(-4);
  CHECK(Contains(taken, line));
  CHECK(Contains(ErrorOf([&] { graph.Variable("v", Zeros({kUnknown})); }),
                 "concrete shape, got [?]"));
}

TEST_CASE("constants and first values are of the time when they were given") {
  Graph graph;
  Tensor given = Tensor::Full(DType::kFloat32, {2}, 1);
  const Output v = graph.Variable("v", CopyOf(given));
  const Output x = Input(graph, {kUnknown});
  const Output y = graph.Constant(given) + Sum(x);
  Session session(graph);
  for (const int64_t batch : {1, 2}) {
    given.data<float>()[0] += 6;
    session.Initialize();
    CHECK_EQ(session.Read(v).At(0), 1);
    const Tensor zeros = Tensor::Zeros(DType::kFloat32, {batch});
    CHECK_EQ(session.Run({{x, zeros}}, y).At(0), 1);
  }
  // What nobody else has is not copied.
  Tensor own = Tensor::Full(DType::kFloat32, {2}, 1);
  const void* const bytes = own.raw();
  CHECK_EQ(ConstantValue(graph.Constant(std::move(own)))->raw(), bytes);
}

// --- Inference ---------------------------------------------------------------

TEST_CASE("shapes and dtypes are known as soon as a node is there") {
  Graph graph;
  const Output x = Input(graph, {kUnknown, 784});
  const Output w = graph.Variable("w", Zeros({784, 10}));
  const Output b = graph.Variable("b", Zeros({10}));
  const Output y = MatMul(x, w) + b;
  CHECK_EQ(y.type().ToString(), "float32[?,10]");
  CHECK_EQ(ArgMax(y, 1).type().ToString(), "int64[?]");
  CHECK_EQ(Equal(y, 0).type().ToString(), "bool[?,10]");
  CHECK_EQ(Cast(y, DType::kFloat16).type().ToString(), "float16[?,10]");
  CHECK_EQ(Sum(y).type().ToString(), "float32[]");
  CHECK_EQ(Reshape(x, {-1, 28, 28, 1}).type().ToString(), "float32[?,28,28,1]");
  CHECK_EQ(Transpose(x).type().ToString(), "float32[784,?]");
  // An unknown dimension against 1 stays unknown, against n becomes n.
  const Output row = graph.Placeholder("row", DType::kFloat32, {1, 784});
  const Output five = graph.Placeholder("five", DType::kFloat32, {5, 1});
  CHECK_EQ((x + row).shape().ToString(), "[?,784]");
  CHECK_EQ((x + five).shape().ToString(), "[5,784]");
}

TEST_CASE("numbers take the other operand's dtype") {
  Graph graph;
  const Output x = Input(graph, {2}, DType::kFloat16);
  CHECK_EQ((2 * x).dtype(), DType::kFloat16);
  CHECK_EQ((x - 0.5).dtype(), DType::kFloat16);
  const Output i = graph.Placeholder("i", DType::kInt32, {2});
  const Output y = i + 1;
  CHECK_EQ(y.dtype(), DType::kInt32);
  CHECK_EQ(y.node().input(1).node().attrs().TensorOf("value").IntAt(0), 1);
  CHECK_EQ(y.node().input(1).node().location(), y.node().location());
}

// `a < b` and `a == b` compare handles.
static_assert(std::is_convertible_v<int, Operand>);
static_assert(!std::is_convertible_v<bool, Operand>);

// --- Errors ------------------------------------------------------------------

TEST_CASE("a wrong shape names op, node, both shapes and the line") {
  Graph graph;
  const Output a = graph.Placeholder("a", DType::kFloat32, {32, 512});
  const Output b = graph.Placeholder("b", DType::kFloat32, {256, 10});
  NameScope scope(graph, "fc1");
  std::string error = ErrorOf([&] { MatMul(a, b); });
  CHECK(Contains(error,
                 "MatMul 'fc1/mat_mul': inner dimensions differ: a=[32,512] "
                 "b=[256,10]"));
  CHECK(Contains(error, Here(-4)));
  CHECK_EQ(error.find('\n'), std::string::npos);

  // Through operators, also when several stand in one expression.
  error = ErrorOf([&] { Exp(a) * 2.0 + b; });
  CHECK(Contains(error, "Add 'fc1/add'"));
  CHECK(Contains(error, "[32,512] and [256,10]"));
  CHECK(Contains(error, Here(-3)));
  // The failed node is not in the graph, nor is its name taken.
  CHECK_EQ(graph.Find("fc1/mat_mul"), nullptr);
  CHECK_EQ(MatMul(a, Transpose(a)).name(), "fc1/mat_mul");
}

Output MyLayer(Operand x, const Output& w) {
  LocationScope location(x.graph(), x.location());
  return MatMul(Relu(x), w);
}
Output MyNetwork(Operand x, const Output& w) {
  LocationScope location(x.graph(), x.location());
  return MyLayer(MyLayer(x, w), w);
}

TEST_CASE("layers pass on their caller's line, however deep") {
  Graph graph;
  const Output x = Input(graph, {2, 3});
  const Output w = graph.Variable("w", Zeros({3, 4}));
  const std::string error = ErrorOf([&] { MyNetwork(x, w); });
  CHECK(Contains(error, "a=[2,4] b=[3,4]"));
  CHECK(Contains(error, Here(-2)));
  // The library's layers do so, too.
  const std::string dense = ErrorOf(
      [&] { layers::Dense(Scope(graph, "fc1"), Sum(x), {.units = 10}); });
  CHECK(Contains(dense, "fc1"));
  CHECK(Contains(dense, Here(-2)));
  const std::string conv = ErrorOf(
      [&] { layers::Conv2D(Scope(graph, "conv1"), x, {.filters = 4}); });
  CHECK(Contains(conv, "conv1"));
  CHECK(Contains(conv, "[2,3]"));
  CHECK(Contains(conv, Here(-3)));
}

TEST_CASE("gradients come from the forward node's line") {
  Graph graph;
  const Output x = Input(graph, {2, 3});
  const Output y = Exp(Neg(x));
  const std::string line = Here(-1);
  const Output dx = Gradients({y}, {x})[0];
  CHECK_EQ("(" + dx.node().location() + ")", line);
}

TEST_CASE("wrong dtypes, counts and attributes") {
  Graph graph;
  const Output x = Input(graph, {2, 2});
  const Output i = graph.Placeholder("i", DType::kInt32, {2, 2});
  auto add = [&](NodeRequest request) {
    return ErrorOf([&] { graph.Add(std::move(request)); });
  };
  const std::string differ = ErrorOf([&] { x + i; });
  const std::string line = Here(-1);
  CHECK(Contains(
      differ,
      "Add 'add': dtypes differ: 'b' is int32, another operand float32; "
      "inputs float32[2,2], int32[2,2] " +
          line));
  CHECK(Contains(ErrorOf([&] { Exp(i); }), "Exp 'exp': 'x' cannot be int32"));
  CHECK(Contains(ErrorOf([&] { LogicalNot(x); }),
                 "LogicalNot 'logical_not': 'x' "));
  CHECK(Contains(add({"MatMul", {x}}),
                 "MatMul 'mat_mul': 1 inputs given, wanted 2"));
  CHECK(Contains(add({"Neg", {x, x}}), "2 inputs given, wanted 1"));
  CHECK(Contains(add({"Concat", {}, {{"axis", 0}}}),
                 "0 inputs given, wanted at least 1"));
  CHECK(Contains(add({"Assign", {x}}), "1 inputs given, wanted 2 or 3"));
  CHECK(Contains(add({"Nog", {x}}),
                 "unknown op 'Nog'; did you mean 'Log' or 'Neg'?"));
  CHECK(Contains(add({"Nog", {x}}), Here()));
  CHECK(Contains(add({"MatMul", {x, x}, {{"transpose_c", true}}}),
                 "no attribute 'transpose_c'; did you mean 'transpose_a' or "
                 "'transpose_b'? the op has transpose_a, transpose_b"));
  CHECK(Contains(add({"Neg", {x}, {{"axis", 1}}}),
                 "no attribute 'axis'; the op has none"));
  CHECK(Contains(add({"MatMul", {x, x}, {{"transpose_a", 1}}}),
                 "attribute 'transpose_a' is of type int, wanted bool"));
  CHECK(
      Contains(add({"ExpandDims", {x}}), "attribute 'axis' (int) is missing"));
  CHECK(Contains(add({"Add", {1, 2}}), "'a' is the number 1, wanted a tensor"));
  CHECK(Contains(add({"Add", {x, Output()}}), "'b' is an empty Output"));
  CHECK(Contains(ErrorOf([&] { Neg(Output()); }),
                 "a tensor was wanted, got an empty Output"));
  CHECK(
      Contains(ErrorOf([&] { Operand(1) + 2; }), "wanted at least one tensor"));
  Graph other;
  const Output stranger = Input(other, {2, 2});
  CHECK(Contains(ErrorOf([&] { x + stranger; }),
                 "input 1 belongs to another graph"));
  for (const int index : {1, -1}) {
    const std::string none = fmt::format("has 1 outputs, no output {}", index);
    const Output absent(&x.node(), index);
    CHECK(Contains(add({"Neg", {absent}}), "input 0: Placeholder 'x' " + none));
    CHECK(Contains(add({"Add", {1, absent}}), none));
    CHECK(Contains(ErrorOf([&] { (void)absent.dtype(); }), none));
  }
  // Nothing of all this is left.
  CHECK_EQ(graph.nodes().size(), 2);
}

TEST_CASE("empty handles are refused wherever there are several") {
  Graph graph;
  const Output x = Input(graph, {2});
  CHECK(Contains(ErrorOf([&] { AddN({Output(), x}); }), "an empty Output"));
  CHECK(Contains(ErrorOf([&] {
                   AllFinite({Output(), x});
                 }),
                 "an empty Output"));
  const std::vector<Operation> one_empty = {x, Output()};
  const std::string message = "operation 1 to run after is an empty handle";
  CHECK(Contains(ErrorOf([&] { Group(graph, one_empty); }), message));
  CHECK(Contains(ErrorOf([&] { NoOp(graph, one_empty); }), message));
  CHECK(Contains(ErrorOf([&] { WithDependencies(one_empty, x); }), message));
  // Nothing of all this is left.
  CHECK_EQ(graph.nodes().size(), 1);
  CHECK(Neg(x).node().control_inputs().empty());
}

TEST_CASE("sizes no tensor can have") {
  Graph graph;
  const Output x = Input(graph, {int64_t{1} << 40, kUnknown});
  const Output y = Input(graph, {1, int64_t{1} << 40});
  CHECK(Contains(ErrorOf([&] { x + y; }), "2^47 bytes"));
  CHECK(Contains(ErrorOf([&] {
                   Reshape(x, {1, 1, 1, 1, 1, 1, 1, 1, 1});
                 }),
                 "a tensor has at most 8 dimensions, got 9"));
  // 2^64 bytes and more, whose count would wrap.
  for (const Shape& shape :
       {Shape{int64_t{1} << 62}, Shape{int64_t{1} << 31, int64_t{1} << 31},
        Shape{0, int64_t{1} << 62}, Shape{int64_t{1} << 62, 0}}) {
    CHECK(Contains(ErrorOf([&] { Fill(graph, shape, 1); }), "2^47 bytes"));
    CHECK(
        Contains(ErrorOf([&] { RandomUniform(graph, shape); }), "2^47 bytes"));
    CHECK(Contains(ErrorOf([&] { Input(graph, shape); }), "2^47 bytes"));
  }
}

// --- What passes use ---------------------------------------------------------

TEST_CASE("clones share nothing") {
  Graph graph;
  const Output x = Input(graph, {2});
  const Output y = Neg(x);
  const Output z = Exp(y);
  z.node().AddControlInput(&x.node());
  y.node().set_device("/cpu:1");
  y.node().set_origin("elsewhere");
  const auto copy = graph.Clone();
  const Node& twin = *copy->Find("exp");
  CHECK_EQ(copy->nodes().size(), 3);
  CHECK_EQ(&twin.graph(), copy.get());
  CHECK_EQ(&twin.input(0).node(), copy->Find("neg"));
  CHECK_EQ(twin.control_inputs().at(0), copy->Find("x"));
  CHECK_EQ(copy->Find("neg")->device(), "/cpu:1");
  CHECK_EQ(copy->Find("neg")->origin(), "elsewhere");
  CHECK_EQ(twin.location(), z.node().location());

  const auto part =
      graph.Clone([&](const Node& node) { return &node != &z.node(); });
  CHECK_EQ(part->nodes().size(), 2);
  CHECK_EQ(part->Find("exp"), nullptr);
}

}  // namespace
}  // namespace sluice
