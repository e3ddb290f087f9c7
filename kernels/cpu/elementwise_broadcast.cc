#include "engine/threads.h"
#include "kernels/cpu/elementwise.h"

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
  if (spec.attrs.Has("lo")) params.a = spec.attrs.Float("lo");
  if (spec.attrs.Has("hi")) params.b = spec.attrs.Float("hi");
  return params;
}

KernelPtr MakeUnary(const KernelSpec& spec, simd::UnaryFn fn) {
  const int64_t n = spec.outputs[0].shape.elements();
  const int64_t x_size = SizeOf(spec.inputs[0].dtype);
  const int64_t y_size = SizeOf(spec.outputs[0].dtype);
  const simd::OpParams params = ParamsOf(spec);
  return KernelOf([=](const KernelContext& c) {
    ParallelFor(n, kElementwiseGrain, [&](int64_t begin, int64_t end) {
      fn(c.input<char>(0) + begin * x_size, c.output<char>(0) + begin * y_size,
         end - begin, params);
    });
  });
}

namespace {

// Runs fn(a, a is an array, b, b is an array, y, n) over a broadcast.
template <typename Fn>
KernelPtr OverRuns(const KernelSpec& spec, Fn fn) {
  const Broadcast broadcast(spec.outputs[0].shape, spec.inputs);
  const int64_t size = SizeOf(spec.inputs[0].dtype);
  const int64_t y_size = SizeOf(spec.outputs[0].dtype);
  return KernelOf([=](const KernelContext& c) {
    ParallelFor(broadcast.elements(), kElementwiseGrain,
                [&](int64_t begin, int64_t end) {
                  broadcast.ForEachRun(
                      begin, end,
                      [&](const Broadcast::Offsets& at, int64_t y, int64_t n) {
                        fn(c.input<char>(0) + at[0] * size, broadcast.step(0),
                           c.input<char>(1) + at[1] * size, broadcast.step(1),
                           c.output<char>(0) + y * y_size, n);
                      });
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
