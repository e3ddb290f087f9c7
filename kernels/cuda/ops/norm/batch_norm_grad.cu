// Batch normalisation, backward: sums of the gradient down the columns, then
// dx = g * factor + (x - mean) * slope + shift.
#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

template <typename T>
struct Operands {
  const T* x;
  const uint8_t* mask;  // or null
  const T* dy;
  const T* dy2;  // or null
  const ComputeOf<T>* mean;
  T* keep;  // where the sum dy + dy2 stays for the last pass; or null
};

// The bits of the mask for up to eight elements from i on, which may begin
// within a byte. whole: they are in one byte.
__device__ inline unsigned MaskBits(const uint8_t* mask, int64_t i,
                                    int64_t count, bool whole) {
  const int shift = static_cast<int>(i % 8);
  unsigned bits = Load(mask + i / 8) >> shift;
  if (!whole && shift != 0 && count > 8 - shift) {
    bits |= static_cast<unsigned>(Load(mask + i / 8 + 1)) << (8 - shift);
  }
  return bits;
}

// N elements of x and of what its gradient is found from.
template <typename T, int N>
struct GradIn {
  Pack<T, N> x, dy, dy2;
  unsigned bits;
};

// Of g, and of g * (x - mean). kMask, kTwo: whether there are a mask and dy2,
// where packs are whole; otherwise that is seen as it goes.
template <typename T, bool kWhole, bool kMask, bool kTwo>
__global__ void __launch_bounds__(kColumnThreads, kWhole ? kColumnBlocks<T> : 1)
    GradSumsKernel(BatchNormShape shape, Segments segments, Operands<T> o,
                   ComputeOf<T>* results) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  const bool masked = kWhole ? kMask : o.mask != nullptr;
  const bool two = kWhole ? kTwo : o.dy2 != nullptr;
  FirstPass<T, ColumnSums<C>, kWhole && sizeof(T) <= 2 ? 2 : 1>(
      shape, segments, results,
      [&](const ColumnTask& t) {
        return LoadPackOf<kWhole, C, kN>(o.mean + t.channel, t.count);
      },
      [&](int64_t at, int64_t, const ColumnTask& t) {
        GradIn<T, kN> in;
        in.x = LoadPackOf<kWhole>(o.x + at, t.count);
        in.dy = LoadPackOf<kWhole>(o.dy + at, t.count);
        if (two) in.dy2 = LoadPackOf<kWhole>(o.dy2 + at, t.count);
        in.bits =
            masked ? MaskBits(o.mask, at,
                              scalar::Minimum()(t.count, int64_t{kN}), kWhole)
                   : ~0u;
        return in;
      },
      [&](ColumnSums<C>(&own)[kN], const GradIn<T, kN>& in, int64_t at,
          const ColumnTask& t, const Pack<C, kN>& mean) {
        Pack<T, kN> keep;
        for (int k = 0; k < kN && (kWhole || k < t.count); ++k) {
          C g = static_cast<C>(in.dy.at[k]);
          if (two) g += static_cast<C>(in.dy2.at[k]);
          if (masked && (in.bits >> k & 1u) == 0) g = C(0);
          own[k].sum += g;
          own[k].dot += g * (static_cast<C>(in.x.at[k]) - mean.at[k]);
          keep.at[k] = T(g);
        }
        if (o.keep != nullptr) {
          StorePackOf<kWhole>(keep, o.keep + at, t.count);
        }
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
    CoefficientsKernel(BatchNormShape shape, Segments segments,
                       const C* results, Coefficients<C> o) {
  SecondPass<ColumnSums<C>>(
      shape, segments, results, [&](const ColumnSums<C>& s, int64_t c) {
        const C inv_std = Load(o.inv_std + c);
        const C factor = Load(o.scale + c) * inv_std;
        const C per_row = factor / static_cast<C>(shape.rows);
        Store(s.dot * inv_std, o.dscale + c);
        Store(s.sum, o.doffset + c);
        Store(factor, o.factor + c);
        Store(-per_row * s.dot * inv_std * inv_std, o.slope + c);
        Store(-per_row * s.sum, o.shift + c);
      });
}

template <typename C>
struct GradChannels {
  Pack<C, kOctet> mean, factor, slope, shift;
};

template <typename T>
__device__ Pack<T, kOctet> GradOctet(const GradIn<T, kOctet>& in,
                                     const GradChannels<ComputeOf<T>>& c) {
  using C = ComputeOf<T>;
  Pack<T, kOctet> dx;
  for (int k = 0; k < kOctet; ++k) {
    const C g = (in.bits >> k & 1u) != 0 ? static_cast<C>(in.dy.at[k]) : C(0);
    const C distance = static_cast<C>(in.x.at[k]) - c.mean.at[k];
    dx.at[k] = T(g * c.factor.at[k] + distance * c.slope.at[k] + c.shift.at[k]);
  }
  return dx;
}

// Where channels are whole octets.
template <typename T, bool kMask>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks<T>)
    GradKernel(BatchNormShape shape, Segments segments, Operands<T> o,
               Workspace<ComputeOf<T>> w, T* dx) {
  using C = ComputeOf<T>;
  ThirdPass<sizeof(T) <= 2 ? 2 : 1>(
      shape, segments,
      [&](int64_t channel) {
        return GradChannels<C>{
            LoadPackOf<true, C, kOctet>(o.mean + channel, kOctet),
            LoadPackOf<true, C, kOctet>(w.factor + channel, kOctet),
            LoadPackOf<true, C, kOctet>(w.slope + channel, kOctet),
            LoadPackOf<true, C, kOctet>(w.shift + channel, kOctet)};
      },
      [&](int64_t at) {
        GradIn<T, kOctet> in;
        in.x = LoadPackOf<true, T, kOctet>(o.x + at, kOctet);
        in.dy = LoadPackOf<true, T, kOctet>(o.dy + at, kOctet);
        in.bits = kMask ? MaskBits(o.mask, at, kOctet, true) : ~0u;
        return in;
      },
      [&](const GradIn<T, kOctet>& in, int64_t at,
          const GradChannels<C>& channels) {
        StorePackOf<true>(GradOctet(in, channels), dx + at, kOctet);
      });
}

// Of any shape.
template <typename T>
__global__ void GradAnyKernel(BatchNormShape shape, Operands<T> o,
                              Workspace<ComputeOf<T>> w, T* dx) {
  const int64_t n = shape.rows * shape.channels;
  for (int64_t i = GlobalThread() * kOctet; i < n;
       i += GlobalThreads() * kOctet) {
    const int64_t count = n - i;
    GradIn<T, kOctet> in;
    in.x = LoadPackOf<false, T, kOctet>(o.x + i, count);
    in.dy = LoadPackOf<false, T, kOctet>(o.dy + i, count);
    in.bits = o.mask != nullptr ? MaskBits(o.mask, i, kOctet, true) : ~0u;
    const GradChannels<ComputeOf<T>> channels = {
        LoadChannels(o.mean, i, shape.channels),
        LoadChannels(w.factor, i, shape.channels),
        LoadChannels(w.slope, i, shape.channels),
        LoadChannels(w.shift, i, shape.channels)};
    StorePackOf<false>(GradOctet(in, channels), dx + i, count);
  }
}

template <typename T>
Status BatchNormGrad(const BatchNormShape& shape,
                     const BatchNormGradOperands& o, cudaStream_t stream) {
  using C = ComputeOf<T>;
  const Segments segments = SegmentsOf(shape);
  const Workspace<C> work(shape, o.workspace);
  // A sum of two terms is kept for the last pass, in dx if nowhere else.
  void* keep = o.g == nullptr && o.dy2 != nullptr ? o.dx : o.g;
  Operands<T> typed = {
      static_cast<const T*>(o.x),    o.mask,
      static_cast<const T*>(o.dy),   static_cast<const T*>(o.dy2),
      static_cast<const C*>(o.mean), static_cast<T*>(keep)};
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto whole, auto mask, auto two) {
        constexpr bool kWhole = whole.value;
        return Launch(
            "BatchNormGrad sums", FirstPassGrid<T, ColumnSums<C>>(shape),
            stream, GradSumsKernel < T, kWhole, kWhole && mask.value,
            kWhole && two.value >, shape, segments, typed, work.segments);
      },
      ChannelsAreWhole<T, kPack<T>>(shape, o.x, o.dy, o.dy2, keep) &&
          IsAligned<C, kPack<T>>(o.mean),
      o.mask != nullptr, o.dy2 != nullptr));
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
  constexpr const char* kName = "BatchNormGrad";
  T* dx = static_cast<T*>(o.dx);
  if (!ChannelsAreWhole<T, kOctet>(shape, typed.x, typed.dy, dx) ||
      !ChannelsAreWhole<C, kOctet>(shape, typed.mean, work.factor, work.slope,
                                   work.shift)) {
    return Launch(kName, OctetGrid(shape), stream, GradAnyKernel<T>, shape,
                  typed, work, dx);
  }
  return DispatchBools(
      [&](auto mask) {
        return Launch(kName, ColumnGrid(shape, kOctet), stream,
                      GradKernel<T, mask.value>, shape, segments, typed, work,
                      dx);
      },
      typed.mask != nullptr);
}

}  // namespace

BatchNormGradLauncher FindBatchNormGrad(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> BatchNormGradLauncher {
                            return BatchNormGrad<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
