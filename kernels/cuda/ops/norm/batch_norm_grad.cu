// Batch normalisation, backward: sums of the gradient down the columns, then
// dx = g * factor + (x - mean) * slope + shift.
#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

template <typename T>
struct Operands {
  const T* x;
  const uint8_t* mask;
  const T* dy;
  const T* dy2;
  const ComputeOf<T>* mean;
  T* keep;  // where the sum dy + dy2 stays for the last pass; or null
};

// The bits of the mask for up to eight elements from i on, which may begin
// within a byte.
__device__ inline unsigned MaskBits(const uint8_t* mask, int64_t i,
                                    int64_t count) {
  if (mask == nullptr) return 0xffu;
  const int shift = static_cast<int>(i % 8);
  unsigned bits = mask[i / 8] >> shift;
  if (shift != 0 && count > 8 - shift) {
    bits |= static_cast<unsigned>(mask[i / 8 + 1]) << (8 - shift);
  }
  return bits;
}

// Of g, and of g * (x - mean).
template <typename T>
__global__ void __launch_bounds__(kColumnThreads)
    GradSumsKernel(BatchNormShape shape, int64_t segments, Operands<T> o,
                   ComputeOf<T>* results, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  FirstPass<T, ColumnSums<C>>(
      shape, segments, results,
      [&](ColumnSums<C>(&own)[kN], int64_t row, int64_t channel,
          int64_t count) {
        const int64_t at = row * shape.channels + channel;
        const auto x = LoadPack<T>(o.x + at, count, whole);
        const auto dy = LoadPack<T>(o.dy + at, count, whole);
        Pack<T, kN> dy2 = {}, keep;
        if (o.dy2 != nullptr) dy2 = LoadPack<T>(o.dy2 + at, count, whole);
        const unsigned bits = MaskBits(
            o.mask, at, scalar::Minimum()(count, static_cast<int64_t>(kN)));
        for (int k = 0; k < kN && k < count; ++k) {
          C g = static_cast<C>(dy.at[k]);
          if (o.dy2 != nullptr) g += static_cast<C>(dy2.at[k]);
          if ((bits >> k & 1u) == 0) g = C(0);
          own[k].sum += g;
          own[k].dot += g * (static_cast<C>(x.at[k]) - o.mean[channel + k]);
          keep.at[k] = T(g);
        }
        if (o.keep != nullptr) StorePack(keep, o.keep + at, count, whole);
      });
}

// Vectors of channels.
template <typename C>
struct Coefficients {
  const C* scale;
  const C* inv_std;
  C* dscale;
  C* doffset;
  C* factor;
  C* slope;
  C* shift;
};

template <typename C>
__global__ void __launch_bounds__(kColumnThreads)
    CoefficientsKernel(BatchNormShape shape, int64_t segments, const C* results,
                       Coefficients<C> o) {
  SecondPass<ColumnSums<C>>(
      shape, segments, results, [&](const ColumnSums<C>& s, int64_t c) {
        const C inv_std = o.inv_std[c];
        const C factor = o.scale[c] * inv_std;
        const C per_row = factor / static_cast<C>(shape.rows);
        o.dscale[c] = s.dot * inv_std;
        o.doffset[c] = s.sum;
        o.factor[c] = factor;
        o.slope[c] = -per_row * s.dot * inv_std * inv_std;
        o.shift[c] = -per_row * s.sum;
      });
}

template <typename T>
__global__ void GradKernel(BatchNormShape shape, Operands<T> o,
                           Workspace<ComputeOf<T>> w, T* dx, bool whole,
                           bool octets) {
  using C = ComputeOf<T>;
  const int64_t n = shape.rows * shape.channels;
  for (int64_t i = GlobalThread() * kOctet; i < n;
       i += GlobalThreads() * kOctet) {
    const int64_t count = n - i;
    const auto x = LoadPack<T, kOctet>(o.x + i, count, whole);
    const auto dy = LoadPack<T, kOctet>(o.dy + i, count, whole);
    const auto mean = LoadChannels(o.mean, i, shape.channels, octets);
    const auto factor = LoadChannels(w.factor, i, shape.channels, octets);
    const auto slope = LoadChannels(w.slope, i, shape.channels, octets);
    const auto shift = LoadChannels(w.shift, i, shape.channels, octets);
    const unsigned bits = MaskBits(o.mask, i, kOctet);
    Pack<T, kOctet> out;
    for (int k = 0; k < kOctet; ++k) {
      const C g = (bits >> k & 1u) != 0 ? static_cast<C>(dy.at[k]) : C(0);
      const C distance = static_cast<C>(x.at[k]) - mean.at[k];
      out.at[k] = T(g * factor.at[k] + distance * slope.at[k] + shift.at[k]);
    }
    StorePack(out, dx + i, count, whole);
  }
}

template <typename T>
Status BatchNormGrad(const BatchNormShape& shape,
                     const BatchNormGradOperands& o, cudaStream_t stream) {
  using C = ComputeOf<T>;
  const int64_t segments = SegmentsOf(shape);
  const Workspace<C> work(shape, o.workspace);
  // A sum of two terms is kept for the last pass, in dx if nowhere else.
  void* keep = o.g == nullptr && o.dy2 != nullptr ? o.dx : o.g;
  Operands<T> typed = {
      static_cast<const T*>(o.x),    o.mask,
      static_cast<const T*>(o.dy),   static_cast<const T*>(o.dy2),
      static_cast<const C*>(o.mean), static_cast<T*>(keep)};
  SLUICE_RETURN_IF_ERROR(
      Launch("BatchNormGrad sums", FirstPassGrid<T, ColumnSums<C>>(shape),
             stream, GradSumsKernel<T>, shape, segments, typed, work.segments,
             ChannelsAreWhole<T>(shape, o.x, o.dy, o.dy2, keep)));
  const Coefficients<C> coefficients = {static_cast<const C*>(o.scale),
                                        static_cast<const C*>(o.inv_std),
                                        static_cast<C*>(o.dscale),
                                        static_cast<C*>(o.doffset),
                                        work.factor,
                                        work.slope,
                                        work.shift};
  SLUICE_RETURN_IF_ERROR(Launch("BatchNormGrad coefficients",
                                SecondPassGrid<ColumnSums<C>>(shape), stream,
                                CoefficientsKernel<C>, shape, segments,
                                work.segments, coefficients));
  if (keep != nullptr) {
    typed.dy = typed.keep;
    typed.mask = nullptr;
  }
  const bool whole = OctetsAreWhole<T>(typed.x, typed.dy, o.dx);
  const bool octets = OctetsOfChannels<C>(shape, typed.mean, work.factor,
                                          work.slope, work.shift);
  return Launch("BatchNormGrad", OctetGrid(shape), stream, GradKernel<T>, shape,
                typed, work, static_cast<T*>(o.dx), whole, octets);
}

}  // namespace

BatchNormGradLauncher FindBatchNormGrad(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> BatchNormGradLauncher {
                            return BatchNormGrad<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
