// Batch normalisation, forward: moments of segments of rows, combined by the
// formula of Chan, Golub and LeVeque (1979), then the elements. No digits are
// lost to a large mean. Where sums of x are given that say as much, x is not
// read for moments.
#include "kernels/cuda/ops/norm/batch_norm.h"

#include "engine/semantics/channel_sums.h"
#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

// 1 / x to two units in the last place: an exact division is long code.
__device__ inline float QuickReciprocal(float x) {
  return __fdividef(1.0f, x);
}
__device__ inline double QuickReciprocal(double x) {
  return 1 / x;
}

// Of `count` values: their mean and the sum of squared distances from it.
template <typename C>
struct Moments {
  C mean, squares, count;
  Moments() = default;
  __device__ Moments(C first, C second, int64_t rows)
      : mean(first), squares(second), count(static_cast<C>(rows)) {}
  __device__ C first() const { return mean; }
  __device__ C second() const { return squares; }
  friend __device__ Moments operator+(const Moments& a, const Moments& b) {
    Moments both = a;
    both.count += b.count;
    if (b.count == C(0)) return a;
    if (a.count == C(0)) return b;
    const C weight = b.count * QuickReciprocal(both.count);
    const C d = b.mean - a.mean;
    both.mean += d * weight;
    both.squares = a.squares + b.squares + d * d * (a.count * weight);
    return both;
  }
};

// Sums of channels that are given; or null.
template <typename C>
struct GivenSums {
  const C* sum;
  const C* squares;
  __device__ MomentsOfSums<C> At(int64_t channel, int64_t rows) const {
    return MomentsOf(Load(sum + channel), Load(squares + channel),
                     static_cast<C>(rows));
  }
};

// Each thread takes its rows by Welford's recurrence (1962). kGiven: only where
// a channel of its pack has sums that are not sound.
template <typename T, bool kWhole, bool kGiven>
__global__ void __launch_bounds__(kColumnThreads, kWhole ? kColumnBlocks<T> : 1)
    MomentsKernel(BatchNormShape shape, Segments segments, const T* x,
                  GivenSums<ComputeOf<T>> given, ComputeOf<T>* results) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  FirstPass<T, Moments<C>, kWhole ? 4 : 1>(
      shape, segments, results,
      [&](const ColumnTask& t) {
        bool wanted = !kGiven;
        for (int k = 0; kGiven && k < kN && k < t.count; ++k) {
          wanted |= !given.At(t.channel + k, shape.rows).sound;
        }
        return wanted;
      },
      [](const ColumnTask&) { return 0; },
      [&](int64_t at, int64_t, const ColumnTask& t) {
        return LoadPackOf<kWhole>(x + at, t.count);
      },
      [&](Moments<C>(&own)[kN], const Pack<T, kN>& pack, int64_t,
          const ColumnTask&, int) {
        const C n = own[0].count + C(1);
        const C weight = QuickReciprocal(n);
        for (int k = 0; k < kN; ++k) {
          const C value = static_cast<C>(pack.at[k]);
          const C d = value - own[k].mean;
          own[k].count = n;
          own[k].mean += d * weight;
          own[k].squares += d * (value - own[k].mean);
        }
      });
}

// BatchNormOperands' vectors of channels.
template <typename C>
struct Statistics {
  const C* scale;
  const C* running_mean;
  const C* running_variance;
  C* mean;
  C* inv_std;
  C* new_mean;
  C* new_variance;
  C* factor;  // inv_std * scale
};

template <typename C, bool kGiven>
__global__ void __launch_bounds__(kColumnThreads)
    StatisticsKernel(BatchNormShape shape, Segments segments, const C* results,
                     GivenSums<C> given, Statistics<C> s) {
  SecondPass<Moments<C>>(
      shape, segments, results, [&](Moments<C> m, int64_t c) {
        if constexpr (kGiven) {
          const MomentsOfSums<C> sums = given.At(c, shape.rows);
          if (sums.sound) {
            m.mean = sums.mean;
            m.squares = sums.squares;
          }
        }
        const C n = scalar::Maximum()(m.count, C(1));
        const C inv_std = C(1) / scalar::Sqrt()(m.squares / n +
                                                static_cast<C>(shape.epsilon));
        const C unbiased = m.squares / scalar::Maximum()(m.count - C(1), C(1));
        // An empty batch says nothing of the data.
        const C keep = m.count > C(0) ? static_cast<C>(shape.momentum) : C(1);
        const C old_mean = Load(s.running_mean + c);
        const C old_variance = Load(s.running_variance + c);
        const C scale = Load(s.scale + c);
        Store(m.mean, s.mean + c);
        Store(inv_std, s.inv_std + c);
        Store(keep * old_mean + (1 - keep) * m.mean, s.new_mean + c);
        Store(keep * old_variance + (1 - keep) * unbiased, s.new_variance + c);
        Store(inv_std * scale, s.factor + c);
      });
}

// inv_std: given in place of the variance, or null.
template <typename C>
__global__ void FactorKernel(BatchNormShape shape, const C* scale,
                             const C* variance, const C* inv_std, C* factor) {
  for (int64_t c = GlobalThread(); c < shape.channels; c += GlobalThreads()) {
    const C value =
        inv_std != nullptr
            ? Load(inv_std + c) * Load(scale + c)
            : Load(scale + c) / scalar::Sqrt()(Load(variance + c) +
                                               static_cast<C>(shape.epsilon));
    Store(value, factor + c);
  }
}

template <typename T>
struct Normalized {
  const T* x;
  const T* addend;  // or null
  const ComputeOf<T>* mean;
  const ComputeOf<T>* factor;
  const ComputeOf<T>* offset;
  T* y;
  uint8_t* mask;  // or null
};

// What eight elements are normalised with.
template <typename C>
struct ChannelValues {
  Pack<C, kOctet> mean, factor, offset;
};
template <typename T>
struct NormalizeOperands {
  Pack<T, kOctet> x, addend;
};

// y = (x - mean) * factor + offset + addend, and with a mask max(0, y), of
// `count` elements. The bits of the mask.
template <typename T>
__device__ unsigned NormalizeOctet(const NormalizeOperands<T>& in,
                                   const ChannelValues<ComputeOf<T>>& c,
                                   bool add, bool mask, int64_t count,
                                   Pack<T, kOctet>* y) {
  using C = ComputeOf<T>;
  unsigned bits = 0;
  for (int k = 0; k < kOctet; ++k) {
    C v = (static_cast<C>(in.x.at[k]) - c.mean.at[k]) * c.factor.at[k] +
          c.offset.at[k];
    if (add) v += static_cast<C>(in.addend.at[k]);
    if (mask) {
      if (v > C(0) && k < count) bits |= 1u << k;
      v = scalar::Relu()(v);
    }
    y->at[k] = T(v);
  }
  return bits;
}

// Where channels are whole octets.
template <typename T, bool kAdd, bool kMask>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks<T>)
    NormalizeKernel(BatchNormShape shape, Segments segments, Normalized<T> o) {
  using C = ComputeOf<T>;
  constexpr int kAtOnce = sizeof(T) > 2 ? 1 : kAdd ? 2 : 4;
  ThirdPass<kAtOnce>(
      shape, segments,
      [&](int64_t channel) {
        return ChannelValues<C>{
            LoadPackOf<true, C, kOctet>(o.mean + channel, kOctet),
            LoadPackOf<true, C, kOctet>(o.factor + channel, kOctet),
            LoadPackOf<true, C, kOctet>(o.offset + channel, kOctet)};
      },
      [&](int64_t at) {
        NormalizeOperands<T> in{};
        in.x = LoadPackOf<true, T, kOctet>(o.x + at, kOctet);
        if constexpr (kAdd) {
          in.addend = LoadPackOf<true, T, kOctet>(o.addend + at, kOctet);
        }
        return in;
      },
      [&](const NormalizeOperands<T>& in, int64_t at,
          const ChannelValues<C>& channels) {
        Pack<T, kOctet> y;
        const unsigned bits =
            NormalizeOctet(in, channels, kAdd, kMask, kOctet, &y);
        StorePackOf<true>(y, o.y + at, kOctet);
        if constexpr (kMask) {
          Store(static_cast<uint8_t>(bits), o.mask + at / kOctet);
        }
      });
}

// Of any shape.
template <typename T>
__global__ void NormalizeAnyKernel(BatchNormShape shape, Normalized<T> o) {
  using C = ComputeOf<T>;
  const int64_t n = shape.rows * shape.channels;
  for (int64_t i = GlobalThread() * kOctet; i < n;
       i += GlobalThreads() * kOctet) {
    const int64_t count = n - i;
    NormalizeOperands<T> in{};
    in.x = LoadPackOf<false, T, kOctet>(o.x + i, count);
    if (o.addend != nullptr) {
      in.addend = LoadPackOf<false, T, kOctet>(o.addend + i, count);
    }
    const ChannelValues<C> channels = {
        LoadChannels(o.mean, i, shape.channels),
        LoadChannels(o.factor, i, shape.channels),
        LoadChannels(o.offset, i, shape.channels)};
    Pack<T, kOctet> y;
    const unsigned bits = NormalizeOctet(in, channels, o.addend != nullptr,
                                         o.mask != nullptr, count, &y);
    StorePackOf<false>(y, o.y + i, count);
    if (o.mask != nullptr) {
      Store(static_cast<uint8_t>(bits), o.mask + i / kOctet);
    }
  }
}

template <typename T>
Status Normalize(const BatchNormShape& shape, const BatchNormOperands& o,
                 const void* mean, const ComputeOf<T>* factor,
                 cudaStream_t stream) {
  using C = ComputeOf<T>;
  const Normalized<T> typed = {static_cast<const T*>(o.x),
                               static_cast<const T*>(o.addend),
                               static_cast<const C*>(mean),
                               factor,
                               static_cast<const C*>(o.offset),
                               static_cast<T*>(o.y),
                               o.mask};
  constexpr const char* kName = "BatchNorm normalize";
  if (!ChannelsAreWhole<T, kOctet>(shape, o.x, o.addend, o.y) ||
      !ChannelsAreWhole<C, kOctet>(shape, mean, factor, o.offset)) {
    return Launch(kName, OctetGrid(shape), stream, NormalizeAnyKernel<T>, shape,
                  typed);
  }
  return DispatchBools(
      [&](auto add, auto mask) {
        return Launch(kName, ColumnGrid(shape, kOctet), stream,
                      NormalizeKernel<T, add.value, mask.value>, shape,
                      SegmentsOf(shape), typed);
      },
      o.addend != nullptr, o.mask != nullptr);
}

template <typename T>
Status BatchNorm(const BatchNormShape& shape, const BatchNormOperands& o,
                 cudaStream_t stream) {
  using C = ComputeOf<T>;
  const Segments segments = SegmentsOf(shape);
  const Workspace<C> work(shape, o.workspace);
  const GivenSums<C> given = {static_cast<const C*>(o.sum),
                              static_cast<const C*>(o.squares)};
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto whole, auto sums) {
        return Launch("BatchNorm moments", FirstPassGrid<T, Moments<C>>(shape),
                      stream, MomentsKernel<T, whole.value, sums.value>, shape,
                      segments, static_cast<const T*>(o.x), given,
                      work.segments);
      },
      ChannelsAreWhole<T, kPack<T>>(shape, o.x), o.sum != nullptr));
  const Statistics<C> statistics = {static_cast<const C*>(o.scale),
                                    static_cast<const C*>(o.running_mean),
                                    static_cast<const C*>(o.running_variance),
                                    static_cast<C*>(o.mean),
                                    static_cast<C*>(o.inv_std),
                                    static_cast<C*>(o.new_mean),
                                    static_cast<C*>(o.new_variance),
                                    work.factor};
  SLUICE_RETURN_IF_ERROR(DispatchBools(
      [&](auto sums) {
        return Launch("BatchNorm statistics", SecondPassGrid<Moments<C>>(shape),
                      stream, StatisticsKernel<C, sums.value>, shape, segments,
                      work.segments, given, statistics);
      },
      o.sum != nullptr));
  return Normalize<T>(shape, o, o.mean, work.factor, stream);
}

template <typename T>
Status BatchNormInference(const BatchNormShape& shape,
                          const BatchNormOperands& o, cudaStream_t stream) {
  using C = ComputeOf<T>;
  const Workspace<C> work(shape, o.workspace);
  SLUICE_RETURN_IF_ERROR(
      Launch("BatchNormInference", GridFor(shape.channels), stream,
             FactorKernel<C>, shape, static_cast<const C*>(o.scale),
             static_cast<const C*>(o.running_variance),
             static_cast<const C*>(o.given_inv_std), work.factor));
  return Normalize<T>(shape, o, o.running_mean, work.factor, stream);
}

}  // namespace

size_t BatchNormWorkspace(const BatchNormShape& shape, DType dtype) {
  return (2 * SegmentsOf(shape).count + 3) * shape.channels *
         SizeOf(ComputeDType(dtype));
}

BatchNormLauncher FindBatchNorm(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> BatchNormLauncher {
                            return BatchNorm<DeviceTypeOf<E>>;
                          });
}

BatchNormLauncher FindBatchNormInference(DType dtype) {
  return DispatchFloating(dtype,
                          []<typename E>(TypeTag<E>) -> BatchNormLauncher {
                            return BatchNormInference<DeviceTypeOf<E>>;
                          });
}

}  // namespace sluice::cuda
