// Random tensors that begin in the middle of larger ones are those elements of
// them, whatever the distribution, the dtype and where they begin.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// Elements [first, first + n) of what the node named "x" draws.
Tensor Drawn(const std::string& op, DType dtype, int64_t first, int64_t n,
             bool integers) {
  Graph graph;
  Attributes attrs = {{"dtype", dtype}, {"first", first}};
  if (op == "RandomUniform") {
    attrs.Set("lo", integers ? AttrValue(-5) : AttrValue(-0.5));
    attrs.Set("hi", integers ? AttrValue(1000) : AttrValue(2.0));
  }
  const Output x = graph
                       .Add({op,
                             {graph.Constant(Tensor::Array<int64_t>({1}, {n}))},
                             std::move(attrs),
                             "x"})
                       .output(0);
  Session session(graph);
  return session.Run({}, x);
}

TEST_CASE("a part of a random tensor is the part of it") {
  std::mt19937 random(3);
  constexpr int64_t kAll = 20'000;
  struct Kind {
    const char* op;
    DType dtype;
    bool integers = false;
  };
  for (const Kind& kind : {Kind{"RandomUniform", DType::kFloat32},
                           Kind{"RandomUniform", DType::kFloat64},
                           Kind{"RandomUniform", DType::kFloat16},
                           Kind{"RandomUniform", DType::kInt32, true},
                           Kind{"RandomUniform", DType::kInt64, true},
                           Kind{"RandomNormal", DType::kFloat32},
                           Kind{"RandomNormal", DType::kFloat64},
                           Kind{"TruncatedNormal", DType::kFloat32},
                           Kind{"TruncatedNormal", DType::kBFloat16}}) {
    CAPTURE(kind.op);
    CAPTURE(NameOf(kind.dtype));
    const Tensor all = Drawn(kind.op, kind.dtype, 0, kAll, kind.integers);
    for (int trial = 0; trial < 6; ++trial) {
      const auto first = 4 * static_cast<int64_t>(random() % (kAll / 4));
      const auto n = static_cast<int64_t>(
          random() % static_cast<uint64_t>(kAll - first + 1));
      CAPTURE(first);
      CAPTURE(n);
      CHECK(Drawn(kind.op, kind.dtype, first, n, kind.integers)
                .BitEqual(all.Rows(first, first + n)));
    }
  }
  CHECK(Contains(
      ErrorOf([] { Drawn("RandomNormal", DType::kFloat32, 6, 3, false); }),
      "the first element is 6, wanted a multiple of 4"));
}

}  // namespace
}  // namespace sluice
