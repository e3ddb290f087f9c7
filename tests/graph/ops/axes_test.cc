// Ops that take a list of axes, all that the table has, and lists that name one
// twice.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/ops/shape.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

TEST_CASE("no list of axes names one twice") {
  int ops = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    for (const AttrDef& attr : op->attrs) {
      if (std::string_view(attr.name) != "axes") continue;
      ++ops;
      CAPTURE(std::string(op->name));
      const DType dtype = op->types[0].allowed.Contains(DType::kFloat32)
                              ? DType::kFloat32
                              : DType::kBool;
      const auto add = [&](const std::vector<int64_t>& axes) {
        Graph graph;
        const Output x = graph.Placeholder("x", dtype, {1, 1, 1});
        graph.Add({op->name, {x}, {{"axes", axes}}});
      };
      for (int64_t axis = 0; axis < 3; ++axis) {
        for (const int64_t a : {axis, axis - 3}) {
          for (const int64_t b : {axis, axis - 3}) {
            const std::string twice =
                "axis " + std::to_string(axis) + " is given twice";
            CHECK(Contains(ErrorOf([&] { add({a, b}); }), twice));
            CHECK(Contains(ErrorOf([&] {
                             add({a, (axis + 1) % 3, b});
                           }),
                           twice));
          }
          CHECK_NOTHROW(add({a, (axis + 1) % 3}));
        }
        CHECK(Contains(ErrorOf([&] { add({axis, 3}); }), "out of range"));
      }
    }
  }
  CHECK(ops >= 10);
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 2});
  CHECK_THROWS_AS(Transpose(x, {0, 0}), Error);
}

}  // namespace
}  // namespace sluice
