// What a step keeps of the order that its graph gives, where passes put less in
// the place of more; and how many operands a node may have.
#include <doctest/doctest.h>

#include <vector>

#include "graph/builder.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

// A shape that is known before may stand for what waits for a write.
TEST_CASE("what depends on a written tensor's shape depends on the write") {
  for (const bool simplify : {true, false}) {
    CAPTURE(simplify);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
    const Output v = graph.Variable("v", Filled(1, {2}));
    const Output total = AssignAdd(v, x);
    const Output size = Cast(Size(Neg(total)), DType::kFloat32);
    Output after;
    {
      const ControlScope scope(graph, {Size(total)});
      after = v * 1.0f;
    }
    Session session(graph, {.simplify = simplify});
    for (const Output& y : {v / size * 2.0f, after}) {
      CAPTURE(y.name());
      session.Initialize();
      const Tensor got =
          session.Run({{x, Tensor::Array<float>({2}, {2, 3})}}, y);
      CHECK(got.BitEqual(Tensor::Array<float>({2}, {3, 4})));
      CHECK(session.Read(v).BitEqual(Tensor::Array<float>({2}, {3, 4})));
    }
  }
}

// A step that writes which rows, or which slices, and uses them after that.
struct WrittenRows {
  Graph graph;
  Output table, rows, slices;
  Operation rows_written, slices_written;

  // Of a table on two devices, or of one on one.
  WrittenRows(bool cut, const Shape& shape) {
    const Shape slice = shape.rank() == 1 ? Shape{2, 3} : Shape{1, 2, 3};
    const auto numbers = [&](std::initializer_list<int64_t> values) {
      return Tensor::Array<int64_t>(shape, values);
    };
    table = graph.Variable("table", CopyOf(Ramp({64, 3})));
    rows = graph.Variable("rows", CopyOf(numbers({3, 60})));
    slices = graph.Variable("slices", Filled(1, slice));
    rows_written = Assign(rows, graph.Constant(numbers({40, 1})));
    slices_written = Assign(slices, graph.Constant(Ramp(slice)));
    if (cut) SpreadRows(table.node(), {"/cpu:0", "/cpu:1"});
  }

  Output Update() { return ApplySgd(table, 0.5, slices, rows); }

  // What is fetched, if that is anything, and the table.
  std::vector<Tensor> Run(const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets) {
    Session session(graph, {.devices = {"/cpu:0", "/cpu:1"}});
    session.Initialize();
    std::vector<Tensor> all = session.Run({}, fetches, targets);
    all.push_back(session.Read(table));
    return all;
  }
};

TEST_CASE("a table in pieces has the rows that were written read and updated") {
  const auto check = [](const auto& run) {
    for (const Shape& shape : {Shape{2}, Shape{1, 2}}) {
      CAPTURE(shape.ToString());
      WrittenRows whole(false, shape), cut(true, shape);
      const std::vector<Tensor> wanted = run(whole), got = run(cut);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].BitEqual(wanted[i]));
      }
    }
  };
  SUBCASE("gathered") {
    check([](WrittenRows& step) {
      const ControlScope after(step.graph, {step.rows_written});
      return step.Run({Gather(step.table, step.rows)}, {});
    });
  }
  SUBCASE("updated, of new rows") {
    check([](WrittenRows& step) {
      const ControlScope after(step.graph, {step.rows_written});
      return step.Run({}, {step.Update()});
    });
  }
  SUBCASE("updated, by new slices") {
    check([](WrittenRows& step) {
      const ControlScope after(step.graph, {step.slices_written});
      return step.Run({}, {step.Update()});
    });
  }
}

TEST_CASE("more operands than an instruction counts are refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  Session session(graph);
  const std::vector<Output> most(65535, x), more(65536, x);
  const Tensor one = Tensor::Array<float>({1}, {1});
  CHECK(session.Run({{x, one}}, Sum(Concat(most, 0))).At(0) == 65535);
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{x, one}}, Concat(more, 0));
                 }),
                 "65536 inputs"));
  CHECK_THROWS_AS(Split(Concat(most, 0), 65536), Error);
}

}  // namespace
}  // namespace sluice
