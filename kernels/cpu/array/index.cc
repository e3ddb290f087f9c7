// Ops that take positions as data. Every index is checked before it is used.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/semantics/gather_shape.h"
#include "engine/tensor.h"
#include "engine/threads.h"
#include "kernels/cpu/array/array_copy.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_groups.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per piece of work, about
// The most of a row's largest that insertion finds quickly.
constexpr int64_t kMostInserted = 64;

int64_t RowsPerPiece(int64_t row) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(row, 1), 1);
}

// NaN counts as larger than everything else.
template <typename T>
bool Exceeds(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a > b || (std::isnan(a) && !std::isnan(b));
  } else {
    return a > b;
  }
}

Result<KernelPtr> MakeOneHot(const KernelSpec& spec) {
  const TensorType y = spec.outputs[0];
  const int64_t n = spec.inputs[0].shape.elements();
  const int64_t depth = spec.attrs.Int("depth");
  const Tensor on = Tensor::Full(y.dtype, {}, spec.attrs.NumberOf("on"));
  const Tensor off = Tensor::Full(y.dtype, {}, spec.attrs.NumberOf("off"));
  const size_t bytes = SizeOf(y.dtype);
  return DispatchIndex(
      spec.inputs[0].dtype, [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
        return KernelOf([=](const KernelContext& c) -> Status {
          const I* indices = c.input<I>(0);
          SLUICE_RETURN_IF_ERROR(CheckIndices(indices, n, depth));
          char* row = c.output<char>(0);
          FillElements(y.dtype, row, n * depth, off.raw());
          for (int64_t i = 0; i < n; ++i, row += depth * bytes) {
            std::memcpy(row + indices[i] * bytes, on.raw(), bytes);
          }
          return {};
        });
      });
}

// The k largest of x[n], of equals the first, by insertion: quick for the small
// k of a top-k, up to kMostInserted.
template <typename T>
void InsertTopOfRow(const T* x, int64_t n, int64_t k, T* values,
                    int64_t* indices) {
  using C = ComputeType<T>;
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const C candidate = static_cast<C>(x[i]);
    int64_t place = found;
    while (place > 0 && Exceeds(candidate, static_cast<C>(values[place - 1]))) {
      --place;
    }
    if (place == k) continue;
    if (found < k) ++found;
    for (int64_t j = found - 1; j > place; --j) {
      values[j] = values[j - 1];
      indices[j] = indices[j - 1];
    }
    values[place] = x[i];
    indices[place] = i;
  }
}

// The same by a heap of the indices so far, the last in order on top, for any
// k: about n log(k) comparisons.
template <typename T>
void HeapTopOfRow(const T* x, int64_t n, int64_t k, T* values,
                  int64_t* indices) {
  const auto exceeds = [x](int64_t i, int64_t j) {
    using C = ComputeType<T>;
    return Exceeds(static_cast<C>(x[i]), static_cast<C>(x[j]));
  };
  const auto before = [&](int64_t i, int64_t j) {
    return exceeds(i, j) || (i < j && !exceeds(j, i));
  };
  std::iota(indices, indices + k, int64_t{0});
  std::make_heap(indices, indices + k, before);
  for (int64_t i = k; i < n; ++i) {
    if (!before(i, indices[0])) continue;
    std::pop_heap(indices, indices + k, before);
    indices[k - 1] = i;
    std::push_heap(indices, indices + k, before);
  }
  std::sort_heap(indices, indices + k, before);
  for (int64_t j = 0; j < k; ++j) values[j] = x[indices[j]];
}

Result<KernelPtr> MakeTopK(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const int64_t n = x[-1], rows = x.elements(0, x.rank() - 1);
  const int64_t k = spec.attrs.Int("k");
  return DispatchDType(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return KernelOf([=](const KernelContext& c) {
          if (k == 0) return;  // there may be 2^62 rows of nothing
          const auto top =
              k <= kMostInserted ? InsertTopOfRow<T> : HeapTopOfRow<T>;
          ParallelFor(rows, RowsPerPiece(n), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              top(c.input<T>(0) + row * n, n, k, c.output<T>(0) + row * k,
                  c.output<int64_t>(1) + row * k);
            }
          });
        });
      });
}

template <typename T, typename I>
KernelPtr InTopKKernel(int64_t rows, int64_t classes, int64_t k) {
  using C = ComputeType<T>;
  return KernelOf([=](const KernelContext& c) -> Status {
    const I* targets = c.input<I>(1);
    SLUICE_RETURN_IF_ERROR(CheckIndices(targets, rows, classes));
    bool* y = c.output<bool>(0);
    for (int64_t row = 0; row < rows; ++row) {
      const T* x = c.input<T>(0) + row * classes;
      const C target = static_cast<C>(x[targets[row]]);
      const auto above = std::count_if(x, x + classes, [&](T other) {
        return Exceeds(static_cast<C>(other), target);
      });
      y[row] = above < k && !std::isnan(target);
    }
    return {};
  });
}

Result<KernelPtr> MakeInTopK(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const int64_t k = spec.attrs.Int("k");
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return DispatchIndex(spec.inputs[1].dtype,
                             [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
                               return InTopKKernel<T, I>(x[0], x[1], k);
                             });
      });
}

Result<KernelPtr> MakeGather(const KernelSpec& spec) {
  const GatherShape plan =
      GatherShapeOf(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  const int64_t bytes =
      plan.inner * static_cast<int64_t>(SizeOf(spec.inputs[0].dtype));
  return DispatchIndex(
      spec.inputs[1].dtype, [&]<typename I>(TypeTag<I>) -> Result<KernelPtr> {
        return KernelOf([plan, bytes](const KernelContext& c) -> Status {
          const auto [batch, middle, size, count, inner] = plan;
          const I* indices = c.input<I>(1);
          SLUICE_RETURN_IF_ERROR(CheckIndices(indices, batch * count, size));
          const char* params = c.input<char>(0);
          char* y = c.output<char>(0);
          const auto rows = [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const int64_t block = row / plan.count, j = row % plan.count;
              const int64_t from =
                  indices[block / plan.middle * plan.count + j];
              std::memcpy(y + row * bytes,
                          params + (block * plan.size + from) * bytes, bytes);
            }
          };
          if (bytes == 0) return {};  // without memory on either side
          ParallelFor(batch * middle * count, RowsPerPiece(inner), rows);
          return {};
        });
      });
}

}  // namespace

void RegisterIndexKernels(KernelTable& table) {
  table.Register({.op = "OneHot", .dtypes = kIndex, .make = MakeOneHot});
  table.Register({.op = "TopK", .dtypes = kNumeric, .make = MakeTopK});
  table.Register({.op = "InTopK", .dtypes = kFloating, .make = MakeInTopK});
  table.Register({.op = "Gather", .make = MakeGather});
}

}  // namespace sluice::cpu
