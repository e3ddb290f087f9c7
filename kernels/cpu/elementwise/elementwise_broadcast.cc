#include "engine/threads.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {

Broadcast::Broadcast(const Shape& output,
                     std::span<const TensorType> operands) {
  // Strides of the operands along the output's dimensions, innermost first;
  // 0 where an operand repeats. Dimensions of size 1 do not matter.
  struct Dim {
    int64_t size;
    Offsets strides;
  };
  std::array<Dim, Shape::kMaxRank> merged;
  int count = 0;
  Offsets next;  // natural stride of each operand
  next.fill(1);
  for (int d = 1; d <= output.rank(); ++d) {
    Dim dim = {output[-d], {}};
    for (size_t k = 0; k < operands.size(); ++k) {
      const Shape& shape = operands[k].shape;
      const int64_t size = d <= shape.rank() ? shape[-d] : 1;
      if (size != 1) dim.strides[k] = next[k];
      next[k] *= size;
    }
    if (dim.size == 1) continue;
    bool extends = count > 0;
    for (int k = 0; extends && k < kMaxOperands; ++k) {
      const Dim& inner = merged[count - 1];
      extends = dim.strides[k] == inner.strides[k] * inner.size;
    }
    if (extends) {
      merged[count - 1].size *= dim.size;
    } else {
      merged[count++] = dim;
    }
  }
  elements_ = output.elements();
  if (count == 0) return;
  run_ = merged[0].size;
  steps_ = merged[0].strides;
  rank_ = count - 1;
  for (int d = 0; d < rank_; ++d) {
    const Dim& dim = merged[rank_ - d];
    dims_[d] = dim.size;
    for (int k = 0; k < kMaxOperands; ++k) strides_[k][d] = dim.strides[k];
  }
}

simd::OpParams ParamsOf(const KernelSpec& spec) {
  simd::OpParams params;
  if (spec.attrs.Has("alpha")) params.a = spec.attrs.Float("alpha");
  if (spec.attrs.Has("lo")) params.a = spec.attrs.NumberOf("lo").real();
  if (spec.attrs.Has("hi")) params.b = spec.attrs.NumberOf("hi").real();
  return params;
}

namespace {

bool IsStreamed(const TensorType& result) {
  return result.bytes() >= kStreamedBytes && SizeOf(result.dtype) >= 4;
}

}  // namespace

KernelPtr MakeUnary(const KernelSpec& spec, simd::UnaryFn fn) {
  const int64_t n = spec.outputs[0].shape.elements();
  const int64_t x_size = SizeOf(spec.inputs[0].dtype);
  const int64_t y_size = SizeOf(spec.outputs[0].dtype);
  const simd::OpParams params = ParamsOf(spec);
  const bool large = IsStreamed(spec.outputs[0]);
  return KernelOf([=](const KernelContext& c) {
    const char* x = c.input<char>(0);
    char* y = c.output<char>(0);
    // In place, the line has been read anyway.
    const bool stream = large && x != y && IsAligned(y);
    ParallelFor(n, kElementwiseGrain, [&](int64_t begin, int64_t end) {
      if (stream) {
        ComputeStreamed(end - begin, y_size, y + begin * y_size,
                        [&](int64_t i, int64_t count, char* out) {
                          fn(x + (begin + i) * x_size, out, count, params);
                        });
      } else {
        fn(x + begin * x_size, y + begin * y_size, end - begin, params);
      }
    });
  });
}

namespace {

// Shorter ones would leave too many lines in part.
constexpr int64_t kStreamedRun = 1024;  // elements

// Runs fn(a, a is an array, b, b is an array, y, n) over a broadcast.
template <typename Fn>
KernelPtr OverRuns(const KernelSpec& spec, Fn fn) {
  const Broadcast broadcast(spec.outputs[0].shape, spec.inputs);
  const int64_t size = SizeOf(spec.inputs[0].dtype);
  const int64_t y_size = SizeOf(spec.outputs[0].dtype);
  const bool large = IsStreamed(spec.outputs[0]);
  return KernelOf([=](const KernelContext& c) {
    const char* a = c.input<char>(0);
    const char* b = c.input<char>(1);
    char* y = c.output<char>(0);
    const bool stream = large && a != y && b != y;
    const auto run = [&](const Broadcast::Offsets& at, int64_t first,
                         int64_t n) {
      const int64_t a_step = broadcast.step(0), b_step = broadcast.step(1);
      const char* from_a = a + at[0] * size;
      const char* from_b = b + at[1] * size;
      char* to = y + first * y_size;
      if (!stream || n < kStreamedRun || !IsAligned(to)) {
        fn(from_a, a_step, from_b, b_step, to, n);
        return;
      }
      ComputeStreamed(n, y_size, to, [&](int64_t i, int64_t count, char* out) {
        fn(from_a + i * a_step * size, a_step, from_b + i * b_step * size,
           b_step, out, count);
      });
    };
    ParallelFor(broadcast.elements(), kElementwiseGrain,
                [&](int64_t begin, int64_t end) {
                  broadcast.ForEachRun(begin, end, run);
                });
  });
}

}  // namespace

KernelPtr MakeBinary(const KernelSpec& spec, StridedFn fn) {
  const simd::OpParams params = ParamsOf(spec);
  return OverRuns(spec,
                  [fn, params](const void* a, int64_t a_step, const void* b,
                               int64_t b_step, void* y, int64_t n) {
                    fn(a, a_step, b, b_step, y, n, params);
                  });
}

void RegisterSimdUnary(KernelTable& table, const char* op, const char* loop,
                       bool (*when)(const KernelSpec&)) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const simd::UnaryFn fn = FindUnary(loop, dtype);
    if (fn == nullptr) continue;
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports = when,
                    .dtypes = dtype,
                    .make = [fn](const KernelSpec& s) -> Result<KernelPtr> {
                      return MakeUnary(s, fn);
                    }});
  }
}

void RegisterSimdBinary(KernelTable& table, const char* op, const char* loop,
                        bool (*when)(const KernelSpec&)) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const simd::BinaryFns fns = FindBinary(loop, dtype);
    if (fns.vector_vector == nullptr) continue;
    table.Register(
        {.op = op,
         .priority = 10,
         .provider = "simd",
         .supports = when,
         .dtypes = dtype,
         .make = [fns](const KernelSpec& s) -> Result<KernelPtr> {
           const simd::OpParams params = ParamsOf(s);
           return OverRuns(
               s, [fns, params](const void* a, int64_t a_step, const void* b,
                                int64_t b_step, void* y, int64_t n) {
                 // Neither is an array only in runs of one element.
                 const simd::BinaryFn fn = a_step == b_step ? fns.vector_vector
                                           : a_step == 1    ? fns.vector_scalar
                                                            : fns.scalar_vector;
                 fn(a, b, y, n, params);
               });
         }});
  }
}

}  // namespace sluice::cpu
