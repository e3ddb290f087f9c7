// Gather, ScatterAdd, OneHot, TopK, InTopK and SumRows against index loops.
#include "graph/ops/index.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/session/session.h"
#include "tests/support/array_reference.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Concretize;
using testing::Contains;
using testing::Counting;
using testing::Dot;
using testing::Flat;
using testing::ForEachIndex;
using testing::Index;
using testing::Rearranged;
using testing::Value;

Tensor RandomIndices(const Shape& shape, int64_t limit, DType dtype) {
  std::mt19937 random(11);
  Tensor t(DType::kInt64, shape);
  for (int64_t& i : t.values<int64_t>()) {
    i = std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  }
  return t.Cast(dtype);
}

struct GatherCase {
  Shape params, indices;
  GatherOptions options;
  Shape result;
};
const GatherCase kGathers[] = {
    {{7, 3}, {5}, {}, {5, 3}},
    {{7}, {2, 3}, {}, {2, 3}},
    {{7, 3}, {}, {}, {3}},
    {{4, 6, 3}, {2, 2}, {.axis = 1}, {4, 2, 2, 3}},
    {{4, 6}, {3}, {.axis = -1}, {4, 3}},
    {{4, 6}, {4, 2}, {.axis = 1, .batch_dims = 1}, {4, 2}},
    {{2, 4, 6, 3}, {2, 5}, {.axis = 2, .batch_dims = 1}, {2, 4, 5, 3}},
    {{1000, 70}, {900}, {}, {900, 70}},
    // Many of each slice, some of more than are added one to another.
    {{9, 5}, {600}, {}, {600, 5}},
    {{3, 3, 2}, {2000}, {.axis = 1}, {3, 2000, 2}},
    {{2, 3, 4}, {2, 700}, {.axis = 1, .batch_dims = 1}, {2, 700, 4}},
};

// Where in params the element at `index` of the result comes from.
Index Source(const GatherCase& c, const Tensor& indices, const Index& index) {
  const int axis = static_cast<int>(
      c.options.axis < 0 ? c.options.axis + c.params.rank() : c.options.axis);
  const auto batch = c.options.batch_dims;
  const auto count = c.indices.rank() - batch;
  Index position(index.begin(), index.begin() + batch);
  position.insert(position.end(), index.begin() + axis,
                  index.begin() + axis + count);
  Index source(index.begin(), index.begin() + axis);
  source.push_back(indices.IntAt(Flat(c.indices, position)));
  source.insert(source.end(), index.begin() + axis + count, index.end());
  return source;
}

TEST_CASE("Gather") {
  for (const GatherCase& c : kGathers) {
    for (DType type : {DType::kInt32, DType::kInt64}) {
      for (DType dtype :
           {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
        CAPTURE(c.params.ToString());
        Graph graph;
        const int64_t limit = c.params[static_cast<int>(c.options.axis)];
        const Tensor indices = RandomIndices(c.indices, limit, type);
        const Tensor params = Counting(c.params, dtype);
        const Output y =
            Gather(graph.Constant(params), graph.Constant(indices), c.options);
        REQUIRE(y.shape() == c.result);
        CHECK(Value(y).BitEqual(Rearranged(
            params, c.result,
            [&](const Index& index) { return Source(c, indices, index); })));
      }
    }
  }
}

TEST_CASE("ScatterAdd adds every update, repeated indices too") {
  for (const GatherCase& c : kGathers) {
    CAPTURE(c.params.ToString());
    Graph graph;
    const int64_t limit = c.params[static_cast<int>(c.options.axis)];
    const Tensor indices = RandomIndices(c.indices, limit, DType::kInt32);
    const Tensor x = Counting(c.params), updates = Counting(c.result);
    Tensor wanted = x.Clone();
    ForEachIndex(c.result, [&](const Index& index) {
      wanted.data<float>()[Flat(c.params, Source(c, indices, index))] +=
          updates.data<float>()[Flat(c.result, index)];
    });
    const Tensor y =
        Value(ScatterAdd(graph.Constant(x), graph.Constant(indices),
                         graph.Constant(updates), c.options));
    CHECK(y.BitEqual(wanted));  // sums of small integers are exact
  }
}

TEST_CASE("ScatterAdd's sums are a row's, however tall the table is") {
  constexpr int64_t kCount = 600, kInner = 3, kRows = 5;
  std::mt19937 random(3);
  Tensor indices = RandomIndices({kCount}, kRows, DType::kInt64);
  // Some of many updates, some of a few, in turn.
  for (int64_t j = 0; j < kCount; j += 2) indices.data<int64_t>()[j] = 0;
  Tensor updates(DType::kFloat32, Shape{kCount, kInner});
  for (float& x : updates.values<float>()) {
    x = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  const auto first_rows = [&](int64_t size) {
    Graph graph;
    const Output y = ScatterAdd(
        graph.Constant(Tensor::Zeros(DType::kFloat32, {size, kInner})),
        graph.Constant(indices), graph.Constant(updates));
    return Value(y).Rows(0, kRows);
  };
  CHECK(first_rows(100'000).BitEqual(first_rows(kRows)));
}

// Of one sign, so that a running sum has ever fewer digits for what is added.
TEST_CASE("very many slices of a row keep the digits of float64") {
  constexpr int64_t kCount = int64_t{1} << 20;
  constexpr double kUnits = 64 * std::numeric_limits<double>::epsilon();
  Graph graph;
  const Output rows = graph.Constant(Tensor::Zeros(DType::kInt64, {kCount}));
  const Output slices =
      graph.Constant(Tensor::Full(DType::kFloat64, {kCount, 1}, 0.1));
  const Output table =
      graph.Constant(Tensor::Zeros(DType::kFloat64, Shape{2, 1}));
  const Tensor added = Value(ScatterAdd(table, rows, slices));
  const long double wanted = static_cast<long double>(kCount) * 0.1;
  CHECK(static_cast<double>(std::abs(added.At(0) / wanted - 1)) < kUnits);
  CHECK(added.At(1) == 0);
  // To the bit what the other way to sum them gives.
  CHECK(Value(SumRows(rows, slices, 2).sums).At(0) == added.At(0));
}

// The message of a step that fails with kOutOfRange.
std::string OutOfRangeMessage(const Output& output) {
  const auto value = Evaluate(output, {});
  REQUIRE(!value.ok());
  CHECK(value.status().code() == Code::kOutOfRange);
  return value.status().message();
}

TEST_CASE("An index out of range names the node, the index and the limit") {
  Graph graph;
  const Output params = graph.Constant(Counting({5, 2}));
  for (int64_t bad : {-1, 5}) {
    const Output indices =
        graph.Constant(Tensor::Array<int64_t>({3}, {0, 4, bad}));
    const std::string at = "index " + std::to_string(bad) +
                           " (element 2 of the indices) is not within [0, 5)";
    const Output y = Gather(params, indices);
    CHECK(OutOfRangeMessage(y) == y.node().Describe() + ": " + at);
    // In a session the user's line is there, too.
    Session session(graph, {.simplify = false});
    CHECK(testing::ErrorOf([&] { session.Run({}, y); }) ==
          y.node().Describe() + ": " + at + " (" + y.node().location() + ")");
    const Output updates = graph.Constant(Counting({3, 2}));
    CHECK(OutOfRangeMessage(ScatterAdd(params, indices, updates)).find(at) !=
          std::string::npos);
    CHECK(OutOfRangeMessage(OneHot(indices, 5)).find(at) != std::string::npos);
    const Output predictions = graph.Constant(Counting({3, 5}));
    CHECK(OutOfRangeMessage(InTopK(predictions, indices, 1)).find(at) !=
          std::string::npos);
  }
  CHECK_THROWS_AS(Gather(params, params), Error);
}

TEST_CASE("OneHot") {
  Graph graph;
  const Tensor indices = RandomIndices({3, 4}, 6, DType::kInt64);
  for (DType dtype : {DType::kFloat32, DType::kInt8, DType::kBool}) {
    const Tensor y = Value(OneHot(graph.Constant(indices), 6,
                                  {.on = 1, .off = 0, .dtype = dtype}));
    REQUIRE(y.shape() == Shape{3, 4, 6});
    for (int64_t i = 0; i < y.elements(); ++i) {
      CHECK(y.IntAt(i) == (indices.IntAt(i / 6) == i % 6));
    }
  }
  const Tensor soft =
      Value(OneHot(graph.Constant(indices), 6, {.on = 0.9, .off = 0.02}));
  CHECK(soft.At(indices.IntAt(0)) == doctest::Approx(0.9));
  CHECK(soft.At((indices.IntAt(0) + 1) % 6) == doctest::Approx(0.02));
}

TEST_CASE("TopK sorts, keeps the first of equals and ranks NaN highest") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<float>(
      {3, 5}, {1, 5, 3, 5, 2,  //
               -1, -2, -3, -4, -5, 0, kNan, 7,
               std::numeric_limits<float>::infinity(), kNan}));
  const TopKOutputs top = TopK(x, 3);
  const Tensor values = Value(top.values), indices = Value(top.indices);
  const int64_t wanted[] = {1, 3, 2, 0, 1, 2, 1, 4, 3};
  for (int i = 0; i < 9; ++i) CHECK(indices.IntAt(i) == wanted[i]);
  CHECK(values.At(0) == 5);
  CHECK(values.At(2) == 3);
  CHECK(values.At(5) == -3);
  CHECK(std::isnan(values.At(7)));

  const Tensor many = RandomIndices({50, 200}, 1000, DType::kInt32);
  const TopKOutputs sorted = TopK(graph.Constant(many), 200);
  const Tensor order = Value(sorted.indices);
  for (int64_t row = 0; row < 50; ++row) {
    Index reference(200);
    for (int i = 0; i < 200; ++i) reference[i] = i;
    std::stable_sort(
        reference.begin(), reference.end(), [&](int64_t a, int64_t b) {
          return many.IntAt(row * 200 + a) > many.IntAt(row * 200 + b);
        });
    for (int i = 0; i < 200; ++i) {
      REQUIRE(order.IntAt(row * 200 + i) == reference[i]);
    }
  }
  CHECK_THROWS_WITH_AS(TopK(x, 6),
                       doctest::Contains("no 6 largest in a row of 5"), Error);
  CHECK_THROWS_WITH_AS(TopK(x, -1), doctest::Contains("k is -1"), Error);
  const Output any = graph.Placeholder("any", DType::kFloat32, {3, kUnknown});
  CHECK_THROWS_WITH_AS(TopK(any, -2), doctest::Contains("k is -2"), Error);
}

TEST_CASE("TopK of very many is a stable sort") {
  constexpr int64_t kElements = 200'000;
  const Tensor classes = RandomIndices({kElements}, 1000, DType::kFloat32);
  Tensor x = classes.Clone();
  for (int64_t i = 0; i < kElements; i += 97) {
    x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  }
  Index wanted(kElements);
  for (int64_t i = 0; i < kElements; ++i) wanted[i] = i;
  std::stable_sort(wanted.begin(), wanted.end(), [&](int64_t a, int64_t b) {
    const float u = x.data<float>()[a], v = x.data<float>()[b];
    return std::isnan(u) ? !std::isnan(v) : u > v;
  });
  Graph graph;
  for (const int64_t k : {int64_t{65}, kElements / 3, kElements}) {
    CAPTURE(k);
    const TopKOutputs top = TopK(graph.Constant(x), k);
    const Tensor values = Value(top.values), indices = Value(top.indices);
    REQUIRE(indices.shape() == Shape{k});
    int64_t wrong = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = indices.data<int64_t>()[i];
      const float u = values.data<float>()[i], v = x.data<float>()[wanted[i]];
      wrong += at == wanted[i] && (u == v || std::isnan(v)) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the 0 largest are none, and have no gradient") {
  for (const Shape& shape : {Shape{3, 5}, Shape{0, 5}, Shape{3, 0}}) {
    Graph graph;
    const Output x = graph.Constant(Tensor::Full(DType::kFloat32, shape, 1));
    const TopKOutputs top = TopK(x, 0);
    CHECK(Value(top.values).shape() == Shape{shape[0], 0});
    CHECK(Value(top.indices).shape() == Shape{shape[0], 0});
    const Tensor dx = Value(Gradients({Sum(top.values)}, {x})[0]);
    CHECK(dx.BitEqual(Tensor::Zeros(DType::kFloat32, shape)));
  }
}

TEST_CASE("indices and slices may be empty") {
  Graph graph;
  const auto zeros = [&](const Shape& shape) {
    return graph.Constant(Tensor::Zeros(DType::kFloat32, shape));
  };
  const Output none = graph.Constant(Tensor::Zeros(DType::kInt32, {0}));
  const Output two = graph.Constant(Tensor::Array<int32_t>({2}, {1, 0}));
  CHECK(Value(Gather(zeros({3, 0}), two)).shape() == Shape{2, 0});
  CHECK(Value(Gather(zeros({3, 4}), none)).shape() == Shape{0, 4});
  CHECK(Value(ScatterAdd(zeros({3, 0}), two, zeros({2, 0}))).shape() ==
        Shape{3, 0});
  CHECK(Value(ScatterAdd(zeros({0, 4}), none, zeros({0, 4}))).shape() ==
        Shape{0, 4});
  CHECK(
      Contains(OutOfRangeMessage(ScatterAdd(zeros({0, 4}), two, zeros({2, 4}))),
               "index 1 (element 0 of the indices) is not within [0, 0)"));
  CHECK(Contains(OutOfRangeMessage(Gather(zeros({0, 4}), two)),
                 "is not within [0, 0)"));
  CHECK(Value(OneHot(none, 4)).shape() == Shape{0, 4});
  CHECK(Value(OneHot(none, 0)).shape() == Shape{0, 0});
}

TEST_CASE("InTopK") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<float>({5, 3}, {1, 3, 2,     //
                                                                1, 3, 2,     //
                                                                2, 2, 2,     //
                                                                kNan, 3, 2,  //
                                                                kNan, 3, 2}));
  const Output targets =
      graph.Constant(Tensor::Array<int64_t>({5}, {2, 0, 2, 0, 1}));
  const Tensor first = Value(InTopK(x, targets, 1));
  const Tensor second = Value(InTopK(x, targets, 2));
  const bool in_one[] = {false, false, true, false, false};
  const bool in_two[] = {true, false, true, false, true};
  for (int i = 0; i < 5; ++i) {
    CHECK(first.IntAt(i) == in_one[i]);
    CHECK(second.IntAt(i) == in_two[i]);
  }
}

TEST_CASE("of very many slices, each has the gradient of its row's first") {
  constexpr int64_t kSlices = 1 << 17, kLimit = 3000, kWidth = 2;
  Tensor seed(DType::kFloat32, {kSlices, kWidth});
  for (int64_t i = 0; i < seed.elements(); ++i) {
    seed.data<float>()[i] = static_cast<float>(i);
  }
  for (const DType type : {DType::kInt32, DType::kInt64}) {
    Tensor rows = RandomIndices({kSlices}, kLimit + 1, DType::kInt64);
    for (int64_t& row : rows.values<int64_t>()) --row;  // -1: of none
    Graph graph;
    const Output values =
        graph.Constant(Tensor::Zeros(DType::kFloat32, seed.shape()));
    const Output sums =
        SumRows(graph.Constant(rows.Cast(type)), values, kLimit).sums;
    const Tensor got =
        Value(Gradients({sums}, {values}, {graph.Constant(seed)})[0]);
    REQUIRE(got.shape() == seed.shape());
    Index first(kLimit, -1);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kSlices; ++i) {
      const int64_t row = rows.data<int64_t>()[i];
      if (row >= 0 && first[row] < 0) first[row] = i;
      for (int64_t k = 0; k < kWidth; ++k) {
        const float wanted =
            row < 0 ? 0 : seed.data<float>()[first[row] * kWidth + k];
        wrong += got.data<float>()[i * kWidth + k] == wanted ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Gradients of Gather, EmbeddingLookup and TopK, of any batch") {
  Graph graph;
  std::mt19937 random(3);
  const auto noise = [&](const Shape& shape) {
    Tensor t(DType::kFloat64, shape);
    std::normal_distribution<double> normal;
    for (double& v : t.values<double>()) v = normal(random);
    return t;
  };
  const Output table = graph.Constant(noise({9, 4}));
  const Output ids = graph.Placeholder("ids", DType::kInt32, {kUnknown, 2});
  const Output x = graph.Placeholder("x", DType::kFloat64, {kUnknown, 6});
  const Output rows = EmbeddingLookup(table, ids);
  const TopKOutputs top = TopK(x, 2);
  const Output seed =
      graph.Placeholder("seed", DType::kFloat64, {kUnknown, 2, 4});
  const Output top_seed =
      graph.Placeholder("top_seed", DType::kFloat64, {kUnknown, 2});
  const Output d_table = Gradients({rows}, {table}, {seed})[0];
  const Output d_x = Gradients({top.values}, {x}, {top_seed})[0];
  const std::map<Output, Tensor> given = {
      {ids, RandomIndices({3, 2}, 9, DType::kInt32)},
      {x, noise({5, 6})},
      {seed, noise({3, 2, 4})},
      {top_seed, noise({5, 2})}};
  Concretize(graph, given);
  CHECK(Dot(Value(rows, given), given.at(seed)) ==
        doctest::Approx(Dot(Value(d_table, given), Value(table))));
  CHECK(Dot(Value(top.values, given), given.at(top_seed)) ==
        doctest::Approx(Dot(Value(d_x, given), given.at(x))));
}

}  // namespace
}  // namespace sluice
