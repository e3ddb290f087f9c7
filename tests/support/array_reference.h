// Index loops for the tests of ops that move elements: slow, obvious, and
// written without the code under test.
#ifndef SLUICE_TESTS_SUPPORT_ARRAY_REFERENCE_H_
#define SLUICE_TESTS_SUPPORT_ARRAY_REFERENCE_H_

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "engine/tensor.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/graph.h"

namespace sluice::testing {

using Index = std::vector<int64_t>;

// Calls fn with every index of an array of this shape, in row-major order.
inline void ForEachIndex(const Shape& shape,
                         const std::function<void(const Index&)>& fn) {
  Index index(shape.rank(), 0);
  for (int64_t count = shape.elements(); count > 0; --count) {
    fn(index);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

inline int64_t Flat(const Shape& shape, const Index& index) {
  int64_t flat = 0;
  for (int d = 0; d < shape.rank(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

// 0, 1, 2, ... (modulo 100, so that every dtype holds them).
inline Tensor Counting(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor t(DType::kInt64, shape);
  for (int64_t i = 0; i < t.elements(); ++i) t.data<int64_t>()[i] = i % 100;
  return t.Cast(dtype);
}

// The tensor whose element at `index` is x's at from(index), or `other` where
// from returns an empty index and x is no scalar.
inline Tensor Rearranged(const Tensor& x, const Shape& shape,
                         const std::function<Index(const Index&)>& from,
                         double other = 0) {
  Tensor y = Tensor::Full(x.dtype(), shape, other);
  const size_t bytes = SizeOf(x.dtype());
  ForEachIndex(shape, [&](const Index& index) {
    const Index source = from(index);
    if (source.empty() && x.shape().rank() > 0) return;
    std::memcpy(
        static_cast<char*>(y.raw()) + Flat(shape, index) * bytes,
        static_cast<const char*>(x.raw()) + Flat(x.shape(), source) * bytes,
        bytes);
  });
  return y;
}

// The value of an output that depends on constants alone, or on `given`.
inline Tensor Value(const Output& output,
                    const std::map<Output, Tensor>& given = {}) {
  return Evaluate(output, given).ValueOrThrow();
}

// A graph whose placeholders' unknown dimensions become those of `given`, as
// when a step is prepared.
inline void Concretize(Graph& graph, const std::map<Output, Tensor>& given) {
  for (const auto& [output, tensor] : given) {
    output.node().set_output_types({{tensor.dtype(), tensor.shape()}});
  }
  for (Node* node : graph.TopologicalOrder()) {
    if (node->Is("Placeholder")) continue;
    ThrowIfError(Graph::Infer(*node));
  }
}

inline double Dot(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) sum += a.At(i) * b.At(i);
  return sum;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_ARRAY_REFERENCE_H_
