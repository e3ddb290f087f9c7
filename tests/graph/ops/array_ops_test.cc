// The ops of shape, array and slice against index loops.
#include "graph/ops/array.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/session/session.h"
#include "tests/support/array_reference.h"

namespace sluice {
namespace {

using testing::Concretize;
using testing::Counting;
using testing::Dot;
using testing::Index;
using testing::Rearranged;
using testing::Value;

constexpr DType kSizes[] = {DType::kInt8, DType::kFloat16, DType::kFloat32,
                            DType::kFloat64, DType::kBool};

// The message of the Error that fn throws, or "".
std::string Complaint(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("Transpose") {
  const std::vector<std::pair<Shape, std::vector<int64_t>>> cases = {
      {{3, 5}, {}},
      {{5, 1, 7}, {2, 0, 1}},
      {{130, 67}, {1, 0}},
      {{2, 3, 4, 5}, {0, 2, 1, 3}},
      {{4, 33, 18}, {0, 2, 1}},
      {{3, 4, 2, 5}, {3, 2, 1, 0}},
      {{2, 3, 4}, {0, 1, 2}},
      {{0, 3}, {1, 0}},
      {{}, {}},
      {{300, 500}, {1, 0}},
      {{7, 6, 5, 4}, {1, 3, 0, 2}}};
  for (const auto& [shape, permutation] : cases) {
    for (DType dtype : kSizes) {
      CAPTURE(shape.ToString());
      Graph graph;
      const Tensor x = Counting(shape, dtype);
      const Tensor y = Value(Transpose(graph.Constant(x), permutation));
      Index from(shape.rank());
      for (int i = 0; i < shape.rank(); ++i) {
        from[i] = permutation.empty() ? shape.rank() - 1 - i : permutation[i];
      }
      Shape wanted;
      for (int64_t axis : from) wanted.push_back(shape[static_cast<int>(axis)]);
      CHECK(y.BitEqual(Rearranged(x, wanted, [&](const Index& index) {
        Index source(index.size());
        for (size_t i = 0; i < index.size(); ++i) source[from[i]] = index[i];
        return source;
      })));
    }
  }
  Graph graph;
  const Output x = graph.Constant(Counting({2, 3}));
  CHECK(Complaint([&] {
          Transpose(x, {0, 0});
        }).find("no permutation of 2 axes") != std::string::npos);
}

TEST_CASE("BroadcastTo") {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{3, 1}, {2, 3, 4}},    {{}, {5}},        {{4}, {3, 4}},
      {{2, 1, 3}, {2, 5, 3}}, {{1}, {70, 300}}, {{6, 1}, {6, 9000}},
      {{2, 3}, {2, 3}},       {{1, 3}, {0, 3}}};
  for (const auto& [from, to] : cases) {
    for (DType dtype : kSizes) {
      CAPTURE(from.ToString());
      Graph graph;
      const Tensor x = Counting(from, dtype);
      const Tensor y = Value(BroadcastTo(graph.Constant(x), to));
      const Shape small = from;
      const int missing = to.rank() - from.rank();
      CHECK(y.BitEqual(Rearranged(x, to, [&](const Index& index) {
        Index source(index.begin() + missing, index.end());
        for (int i = 0; i < small.rank(); ++i) {
          if (small[i] == 1) source[i] = 0;
        }
        return source;
      })));
    }
  }
  Graph graph;
  const Output x = graph.Constant(Counting({2, 3}));
  CHECK(Complaint([&] {
          BroadcastTo(x, {2, 4});
        }).find("[2,3] does not broadcast to [2,4]") != std::string::npos);
  CHECK(Complaint([&] { BroadcastTo(x, {3}); }) != "");
  CHECK(Complaint([&] { BroadcastTo(x, {-1, 3}); }) != "");
  CHECK(BroadcastToShapeOf(x, x) == x);
}

TEST_CASE("Reshape infers one dimension and refuses what does not fit") {
  Graph graph;
  const Tensor x = Counting({2, 6});
  const Output input = graph.Constant(x);
  CHECK(Value(Reshape(input, {3, -1})).BitEqual(x.Reshaped({3, 4})));
  CHECK(Reshape(input, {-1}).shape() == Shape{12});
  const Output one = graph.Constant(1.0, DType::kFloat32);
  CHECK(Reshape(one, Shape{}).shape() == Shape{});
  CHECK(Reshape(one, {1, 1}).shape() == Shape{1, 1});
  CHECK(Complaint([&] {
          Reshape(input, {5, -1});
        }).find("cannot reshape [2,6] to [5,?]") != std::string::npos);
  CHECK(Complaint([&] {
          Reshape(input, {-1, -1});
        }).find("only one dimension") != std::string::npos);
  CHECK(Complaint([&] { Reshape(input, {11}); }) != "");
  CHECK(Complaint([&] { Reshape(input, {-1, 0}); }) != "");

  // By a tensor, and with an unknown batch.
  const Output batch =
      graph.Placeholder("batch", DType::kFloat32, {kUnknown, 6});
  CHECK(Reshape(batch, {-1, 2, 3}).shape() == Shape{kUnknown, 2, 3});
  const Output back = ReshapeToShapeOf(Reshape(batch, {-1, 2, 3}), batch);
  CHECK(back.shape() == Shape{kUnknown, 6});
  const Output by_tensor = Reshape(batch, ShapeOf(input));
  CHECK(by_tensor.shape() == Shape{2, 6});
}

TEST_CASE("ExpandDims and Squeeze") {
  Graph graph;
  const Output x = graph.Constant(Counting({2, 3}));
  CHECK(ExpandDims(x, 0).shape() == Shape{1, 2, 3});
  CHECK(ExpandDims(x, -1).shape() == Shape{2, 3, 1});
  CHECK(ExpandDims(x, 1).shape() == Shape{2, 1, 3});
  CHECK(Complaint([&] { ExpandDims(x, 3); }) != "");
  const Output y = graph.Constant(Counting({1, 2, 1, 3}));
  CHECK(Squeeze(y).shape() == Shape{2, 3});
  CHECK(Squeeze(y, {-2}).shape() == Shape{1, 2, 3});
  CHECK(Value(Squeeze(y, {0})).BitEqual(Counting({2, 1, 3})));
  CHECK(Complaint([&] {
          Squeeze(y, {1});
        }).find("dimension 1 is 2, wanted 1") != std::string::npos);
}

TEST_CASE("Fill, ZerosLike, OnesLike, Range and facts about shapes") {
  Graph graph;
  for (DType dtype : kSizes) {
    CHECK(Value(Fill(graph, {2, 300, 70}, 1, dtype))
              .BitEqual(Tensor::Full(dtype, {2, 300, 70}, 1)));
    const Output x = graph.Placeholder("x", dtype, {kUnknown, 3});
    const Output zeros = ZerosLike(x), ones = OnesLike(x);
    const std::map<Output, Tensor> given = {{x, Counting({4, 3}, dtype)}};
    Concretize(graph, given);
    CHECK(Value(zeros, given).BitEqual(Tensor::Full(dtype, {4, 3}, 0)));
    CHECK(Value(ones, given).BitEqual(Tensor::Full(dtype, {4, 3}, 1)));
    CHECK(Value(ShapeOf(x), given).BitEqual(Counting({2}, DType::kInt64)) ==
          false);
    CHECK(Value(ShapeOf(x), given).IntAt(0) == 4);
    CHECK(Value(Rank(x), given).IntAt(0) == 2);
    CHECK(Value(Size(x), given).IntAt(0) == 12);
  }
  CHECK(Value(Range(graph, 5)).BitEqual(Counting({5}, DType::kInt64)));
  CHECK(Range(graph, -3).shape() == Shape{0});
  const Output start = graph.Constant(1.0, DType::kFloat64);
  const Tensor steps = Value(Range(start, 2.0, 0.25));
  REQUIRE(steps.shape() == Shape{4});
  for (int i = 0; i < 4; ++i) CHECK(steps.At(i) == 1 + 0.25 * i);
  const Tensor down = Value(Range(start, -3, -2));
  REQUIRE(down.shape() == Shape{2});
  CHECK(down.At(1) == -1);
  CHECK(Complaint([&] { Range(start, 2, 0); }) != "");
}

TEST_CASE("a shape that was cast is inferred as the step finds it") {
  struct Case {
    int64_t given;
    DType by;
    int64_t inferred, run;
  };
  for (const Case& c : {Case{300, DType::kInt32, 300, 300},
                        {44, DType::kUInt8, 44, 44},
                        {300, DType::kUInt8, kUnknown, 44},
                        {(int64_t{1} << 32) + 7, DType::kInt32, kUnknown, 7},
                        {2049, DType::kFloat16, kUnknown, 2048}}) {
    CAPTURE(c.given);
    CAPTURE(NameOf(c.by));
    Graph graph;
    const Output given = graph.Constant(Tensor::Array<int64_t>({1}, {c.given}));
    const Output y = Fill(Cast(Cast(given, c.by), DType::kInt64),
                          graph.Constant(1.0, DType::kFloat32));
    CHECK(y.shape() == Shape{c.inferred});
    Session session(graph);
    CHECK(session.Run({}, y).shape() == Shape{c.run});
  }
}

TEST_CASE("Concat and Split") {
  Graph graph;
  for (DType dtype : kSizes) {
    for (int axis = -3; axis < 3; ++axis) {
      CAPTURE(axis);
      const int d = axis < 0 ? axis + 3 : axis;
      std::vector<Tensor> parts;
      std::vector<Output> inputs;
      Shape whole{3, 40, 5};
      whole.set(d, 0);
      for (int64_t size : {2, 1, 0, 4}) {
        Shape shape{3, 40, 5};
        shape.set(d, size);
        whole.set(d, whole[d] + size);
        parts.push_back(Counting(shape, dtype));
        inputs.push_back(graph.Constant(parts.back()));
      }
      const Tensor y = Value(Concat(inputs, axis));
      REQUIRE(y.shape() == whole);
      int64_t before = 0;
      for (const Tensor& part : parts) {
        const Tensor piece =
            Rearranged(y, part.shape(), [&](const Index& index) {
              Index source = index;
              source[d] += before;
              return source;
            });
        CHECK(piece.BitEqual(part));
        before += part.shape()[d];
      }

      const Tensor x = Counting({6, 12, 18}, dtype);
      const auto pieces = Split(graph.Constant(x), 3, axis);
      REQUIRE(pieces.size() == 3);
      for (int i = 0; i < 3; ++i) {
        Shape shape = x.shape();
        shape.set(d, shape[d] / 3);
        CHECK(Value(pieces[i]).BitEqual(
            Rearranged(x, shape, [&](const Index& index) {
              Index source = index;
              source[d] += i * shape[d];
              return source;
            })));
      }
    }
  }
  const Output a = graph.Constant(Counting({2, 3}));
  const Output b = graph.Constant(Counting({3, 3}));
  CHECK(Complaint([&] {
          Concat({a, b}, 1);
        }).find("shapes [2,3] and [3,3] do not fit") != std::string::npos);
  CHECK(Complaint([&] { Concat({}, 0); }) != "");
  CHECK(Complaint([&] { Split(a, 2, 1); }) != "");
}

TEST_CASE("Stack and Unstack") {
  Graph graph;
  for (int axis = -3; axis < 3; ++axis) {
    CAPTURE(axis);
    const int d = axis < 0 ? axis + 3 : axis;
    const Tensor a = Counting({4, 5}), b = Tensor::Full(a.dtype(), {4, 5}, 7);
    const Output y = Stack({graph.Constant(a), graph.Constant(b)}, axis);
    const auto parts = Unstack(y, axis);
    REQUIRE(parts.size() == 2);
    CHECK(y.shape()[d] == 2);
    CHECK(Value(parts[0]).BitEqual(a));
    CHECK(Value(parts[1]).BitEqual(b));
    const Tensor first = Rearranged(Value(y), a.shape(), [&](const Index& i) {
      Index source = i;
      source.insert(source.begin() + d, 0);
      return source;
    });
    CHECK(first.BitEqual(a));
  }
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  CHECK(Complaint([&] { Unstack(x); }).find("must be known") !=
        std::string::npos);
  CHECK(Unstack(x, 1)[2].shape() == Shape{kUnknown});
}

TEST_CASE("Slice") {
  Graph graph;
  const Tensor x = Counting({7, 50, 9});
  const Output input = graph.Constant(x);
  for (const Index& begin : {Index{0, 0, 0}, Index{2, 3, 4}, Index{6, 49, 8}}) {
    const Tensor y = Value(Slice(input, begin, {1, -1, 1}));
    CHECK(y.BitEqual(
        Rearranged(x, {1, 50 - begin[1], 1}, [&](const Index& index) {
          return Index{index[0] + begin[0], index[1] + begin[1],
                       index[2] + begin[2]};
        })));
  }
  CHECK(Complaint([&] {
          Slice(input, {0, 0, 5}, {1, 1, 5});
        }).find("5 elements from 5 are not within dimension 2") !=
        std::string::npos);
  CHECK(Complaint([&] { Slice(input, {0, 0}, {1, 1}); }) != "");
}

TEST_CASE("StridedSlice follows NumPy") {
  constexpr int64_t kNone = 1 << 20;
  struct Case {
    int64_t begin, end, stride;
    std::vector<float> wanted;  // list(range(6))[begin:end:stride] in Python
  };
  const std::vector<Case> cases = {
      {1, 5, 2, {1, 3}},       {kNone, kNone, -1, {5, 4, 3, 2, 1, 0}},
      {-2, kNone, 1, {4, 5}},  {-10, 3, 2, {0, 2}},
      {10, -7, -2, {5, 3, 1}}, {4, 1, -1, {4, 3, 2}},
      {4, 1, 1, {}},           {0, -1, 3, {0, 3}},
      {kNone, 2, -2, {5, 3}},  {5, kNone, -3, {5, 2}},
      {2, 100, 4, {2}},        {-1, -100, -5, {5, 0}},
      {6, kNone, 1, {}},       {-100, -7, -1, {}},
  };
  Graph graph;
  const Output x = graph.Constant(Counting({6}));
  for (const Case& c : cases) {
    CAPTURE(c.begin);
    CAPTURE(c.end);
    CAPTURE(c.stride);
    const Tensor y = Value(StridedSlice(x, {.begin = {c.begin},
                                            .end = {c.end},
                                            .strides = {c.stride},
                                            .begin_mask = c.begin == kNone,
                                            .end_mask = c.end == kNone}));
    CHECK(y.BitEqual(Tensor::Array<float>(
        Shape{static_cast<int64_t>(c.wanted.size())}, c.wanted)));
  }
  const Tensor square = Counting({8, 300, 3});
  const Tensor y = Value(
      StridedSlice(graph.Constant(square),
                   {.begin = {1, -1}, .end = {7, 0}, .strides = {3, -7}}));
  CHECK(y.BitEqual(Rearranged(square, {2, 43, 3}, [](const Index& i) {
    return Index{1 + 3 * i[0], 299 - 7 * i[1], i[2]};
  })));
  CHECK(Complaint([&] {
          StridedSlice(x, {.begin = {0}, .end = {1}, .strides = {0}});
        }).find("stride is 0") != std::string::npos);
}

TEST_CASE("Pad, Tile and Reverse") {
  Graph graph;
  for (DType dtype : kSizes) {
    const Tensor x = Counting({3, 60, 5}, dtype);
    const Output input = graph.Constant(x);
    CHECK(Value(Pad(input, {1, 2, 0, 3, 4, 0}, 1))
              .BitEqual(Rearranged(
                  x, {6, 63, 9},
                  [](const Index& i) {
                    const bool inside =
                        i[0] >= 1 && i[0] < 4 && i[1] < 60 && i[2] >= 4;
                    return inside ? Index{i[0] - 1, i[1], i[2] - 4} : Index{};
                  },
                  1)));
    CHECK(Value(Tile(input, {2, 1, 3}))
              .BitEqual(Rearranged(x, {6, 60, 15}, [](const Index& i) {
                return Index{i[0] % 3, i[1], i[2] % 5};
              })));
    CHECK(Value(Reverse(input, {0, -1}))
              .BitEqual(Rearranged(x, {3, 60, 5}, [](const Index& i) {
                return Index{2 - i[0], i[1], 4 - i[2]};
              })));
  }
  // The gradient sums what the tiles had: in doubles without losing digits.
  constexpr int64_t kTiles = 100'000;
  const Output one = graph.Constant(Tensor::Full(DType::kFloat64, {1}, 1));
  const Output tiled = Tile(one, {kTiles});
  const Output dy = Fill(graph, tiled.shape(), 0.1, DType::kFloat64);
  const double sum = Value(Gradients({tiled}, {one}, {dy})[0]).At(0);
  const auto wanted = static_cast<long double>(kTiles) * 0.1;
  CHECK(std::abs(static_cast<double>(sum / wanted - 1)) < 64 * 0x1p-52);

  const Output x = graph.Constant(Counting({2, 3}));
  CHECK(Complaint([&] { Pad(x, {1, 1, 1}); }) != "");
  CHECK(Complaint([&] { Pad(x, {1, 1, -1, 1}); }) != "");
  CHECK(Complaint([&] { Tile(x, {0, 1}); }) != "");
  CHECK(Complaint([&] { Reverse(x, {2}); }) != "");
  CHECK(Complaint([&] {
          Reverse(x, {0, 0});
        }).find("axis 0 is given twice") != std::string::npos);
}

// All these ops are linear, so a gradient is right when <dy, f(x)> =
// <gradient(dy), x>; with f(0) = 0. Batch dimensions are unknown while the
// graph is built.
TEST_CASE("Gradients are the transposed ops, for unknown dimensions too") {
  using Op = std::function<Output(const Output&)>;
  const Op ops[] = {
      [](const Output& x) {
        return Reshape(x, {-1, 2, 3});
      },
      [](const Output& x) { return ExpandDims(x, 1); },
      [](const Output& x) { return Transpose(x); },
      [](const Output& x) {
        return BroadcastTo(ExpandDims(x, 0), {3, 4, 6});
      },
      [](const Output& x) {
        return Concat({x, x, x}, 0);
      },
      [](const Output& x) {
        return Concat({x, x}, 1);
      },
      [](const Output& x) { return Split(x, 3, 1)[1]; },
      [](const Output& x) { return Split(x, 2, 0)[1]; },
      [](const Output& x) {
        return Stack({x, x}, 1);
      },
      [](const Output& x) { return Unstack(x, 1)[4]; },
      [](const Output& x) {
        return Slice(x, {1, 0}, {2, -1});
      },
      [](const Output& x) {
        return Slice(x, {1, 2}, {-1, 3});
      },
      [](const Output& x) {
        return StridedSlice(
            x, {.begin = {-1, 1}, .end = {0, 6}, .strides = {-2, 2}});
      },
      [](const Output& x) {
        return Pad(x, {1, 2, 0, 1});
      },
      [](const Output& x) {
        return Tile(x, {3, 2});
      },
      [](const Output& x) {
        return Reverse(x, {0, 1});
      },
  };
  std::mt19937 random(7);
  const auto noise = [&](const Shape& shape) {
    Tensor t(DType::kFloat64, shape);
    std::normal_distribution<double> normal;
    for (double& v : t.values<double>()) v = normal(random);
    return t;
  };
  int number = 0;
  for (const Op& op : ops) {
    CAPTURE(number++);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat64, {kUnknown, 6});
    const Output y = op(x);
    const Output dy = graph.Placeholder("dy", DType::kFloat64, y.shape());
    const Output dx = Gradients({y}, {x}, {dy})[0];
    REQUIRE(dx.valid());
    // The gradient is linear in dy: its gradient is op again.
    const Output tangent =
        graph.Placeholder("tangent", DType::kFloat64, {kUnknown, 6});
    const Output again = Gradients({dx}, {dy}, {tangent})[0];
    std::map<Output, Tensor> given = {{x, noise({4, 6})},
                                      {tangent, noise({4, 6})}};
    Concretize(graph, given);
    given[dy] = noise(y.shape());
    Concretize(graph, given);
    CHECK(Dot(given[dy], Value(y, given)) ==
          doctest::Approx(Dot(Value(dx, given), given[x])));
    CHECK(Dot(Value(dx, given), given[tangent]) ==
          doctest::Approx(Dot(given[dy], Value(again, given))));
    // And a session, which optimises the graph, computes the same.
    Session session(graph);
    std::vector<Feed> feeds;
    for (const auto& [output, value] : given) feeds.push_back({output, value});
    const auto fetched = session.Run(feeds, {y, dx, again});
    CHECK(fetched[0].BitEqual(Value(y, given)));
    CHECK(fetched[1].BitEqual(Value(dx, given)));
    CHECK(fetched[2].BitEqual(Value(again, given)));
  }
}

}  // namespace
}  // namespace sluice
