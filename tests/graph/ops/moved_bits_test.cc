// Ops that move elements keep their bits: subnormal numbers, which compute
// threads count as 0, what is in NaNs, and negative zeros.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/ops/array.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"

namespace sluice {
namespace {

const Shape kShape{40, 66};

// A pattern of bits for each element: the smallest numbers, NaNs, -0.
Tensor SpecialBits(DType dtype) {
  Tensor x(dtype, kShape);
  const size_t size = SizeOf(dtype);
  char* bytes = static_cast<char*>(x.raw());
  std::memset(bytes, 0, x.bytes());
  for (int64_t i = 0; i < x.elements(); ++i, bytes += size) {
    bytes[0] = static_cast<char>(i % 100);
    if (i % 3 == 1) bytes[size - 1] = static_cast<char>(0x80);
    if (i % 7 == 6) {  // an infinity's exponent: NaN
      bytes[size - 1] = 0x7f;
      bytes[size - 2] |= static_cast<char>(0xf0);
    }
  }
  return x;
}

std::vector<Output> Moves(const Output& x) {
  Graph& graph = x.graph();
  const Output every = graph.Constant(Tensor::Array<int32_t>({3}, {39, 0, 7}));
  Tensor mask(DType::kBool, kShape);
  for (int64_t i = 0; i < mask.elements(); ++i) {
    mask.data<bool>()[i] = i % 5 != 2;
  }
  std::vector<Output> ys = Split(x, 2, 1);
  for (const Output& row : Unstack(x)) ys.push_back(row);
  const Output turned = Reverse(x, {1});
  ys.insert(
      ys.end(),
      {turned, Reshape(x, {66, 40}), Transpose(x), Tile(x, {2, 3}),
       Concat({x, turned}, 1), Stack({x, turned}, 1), Slice(x, {3, 5}, {9, 33}),
       StridedSlice(x, {.begin = {1, 2}, .end = {39, 60}, .strides = {2, 3}}),
       Pad(x, {1, 2, 3, 4}), BroadcastTo(ExpandDims(x, 1), {40, 2, 66}),
       Gather(x, every), Gather(x, every, {.axis = 1}),
       Select(graph.Constant(mask), x, turned), Cast(x, x.dtype())});
  return ys;
}

// Where each element of the result comes from is what the op makes of numbers
// that count the elements.
TEST_CASE("ops that move elements keep their bits") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    Tensor count(DType::kInt64, kShape);
    for (int64_t i = 0; i < count.elements(); ++i) {
      count.data<int64_t>()[i] = i + 1;
    }
    const Tensor bits = SpecialBits(dtype);
    Graph graph;
    const Output x = graph.Placeholder("x", dtype, kShape);
    const Output n = graph.Placeholder("n", DType::kInt64, kShape);
    const std::vector<Output> ys = Moves(x), sources = Moves(n);
    const size_t size = SizeOf(dtype);
    const std::vector<char> padding(size, 0);
    for (size_t k = 0; k < ys.size(); ++k) {
      const Tensor y = Evaluate(ys[k], {{x, bits}}).ValueOrThrow();
      const Tensor from = Evaluate(sources[k], {{n, count}}).ValueOrThrow();
      REQUIRE(y.shape() == from.shape());
      int wrong = 0;
      for (int64_t i = 0; i < y.elements(); ++i) {
        const int64_t source = from.IntAt(i);
        const char* wanted =
            source == 0
                ? padding.data()
                : static_cast<const char*>(bits.raw()) + (source - 1) * size;
        const char* got = static_cast<const char*>(y.raw()) + i * size;
        if (std::memcmp(got, wanted, size) != 0) ++wrong;
      }
      CAPTURE(NameOf(dtype));
      CAPTURE(std::string(ys[k].node().op().name));
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace sluice
