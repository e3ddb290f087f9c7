// Which of an operation's writes MakeConditional makes conditional: all, or it
// says why not.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// Two variables of 1, to which writes add 2 and 4, and a condition that is fed.
struct Writes {
  Graph graph;
  Output v = graph.Variable("v", Filled(1, {}));
  Output w = graph.Variable("w", Filled(1, {}));
  Output applies = graph.Placeholder("applies", DType::kBool, {});
  Output to_v = AssignAdd(v, 2), to_w = AssignAdd(w, 4);
};

TEST_CASE(
    "what shows a write, or groups such, is conditional as the write is") {
  using Make = std::function<Operation(Writes&)>;
  const struct {
    const char* what;
    Make make;
    bool both = false;  // else of v alone
  } kCases[] = {
      {"the write", [](Writes& x) -> Operation { return x.to_v; }},
      {"an identity", [](Writes& x) -> Operation { return Identity(x.to_v); }},
      {"an identity of another",
       [](Writes& x) -> Operation { return Identity(Identity(x.to_v)); }},
      {"without a gradient",
       [](Writes& x) -> Operation { return StopGradient(x.to_v); }},
      {"reshaped", [](Writes& x) -> Operation { return Reshape(x.to_v, {1}); }},
      {"an identity that waits",
       [](Writes& x) -> Operation {
         return WithDependencies({x.to_v}, x.applies);
       }},
      {"an identity of one that waits for the other",
       [](Writes& x) -> Operation {
         return WithDependencies({x.to_w}, x.to_v);
       },
       true},
      {"a group of a group, twice",
       [](Writes& x) {
         const Operation one = Group(x.graph, {Identity(x.to_v)});
         return Group(x.graph, {one, x.to_w, one});
       },
       true},
      {"beside what is computed of nothing that is written",
       [](Writes& x) {
         return Group(x.graph, {Exp(x.w), x.to_v});
       }},
      {"beside what is computed of it",
       [](Writes& x) {
         return Group(x.graph, {Exp(x.to_v), x.to_v});
       }},
  };
  for (const auto& [what, make, both] : kCases) {
    CAPTURE(what);
    Writes x;
    const Operation operation = make(x);
    MakeConditional(operation, x.applies);
    Session session(x.graph);
    session.Initialize();
    for (const bool applies : {false, true}) {
      session.Run({{x.applies, Tensor::Scalar(applies)}}, operation);
      CHECK(session.Read(x.v).At(0) == (applies ? 3 : 1));
      CHECK(session.Read(x.w).At(0) == (applies && both ? 5 : 1));
    }
  }
}

TEST_CASE("what no condition would stop is refused, and left as it is") {
  using Make = std::function<Operation(Writes&)>;
  const struct {
    Make make;
    const char* error;
  } kCases[] = {
      {[](Writes& x) -> Operation { return Exp(x.v); },
       "it updates no variable"},
      {[](Writes& x) -> Operation { return x.v; }, "it updates no variable"},
      {[](Writes& x) { return Group(x.graph, {}); }, "it updates no variable"},
      {[](Writes& x) -> Operation { return Identity(Exp(x.to_v)); },
       "Identity 'identity': it is computed of what AssignAdd 'assign_add' "
       "writes"},
      {[](Writes& x) {
         return Group(x.graph, {x.to_w, Exp(x.to_v)});
       },
       "NoOp 'group': it is computed of what AssignAdd 'assign_add' writes"},
  };
  for (const auto& [make, error] : kCases) {
    Writes x;
    const Operation operation = make(x);
    const std::string got =
        ErrorOf([&] { MakeConditional(operation, x.applies); });
    CHECK_MESSAGE(Contains(got, error), got);
    for (const Output& write : {x.to_v, x.to_w}) {
      CHECK(write.node().num_inputs() == 2);
    }
  }
}

}  // namespace
}  // namespace sluice
