// Batch normalisation, forward: moments of segments of rows, combined by the
// formula of Chan, Golub and LeVeque (1979), then the elements. No digits are
// lost to a large mean.
#include "kernels/cuda/ops/norm/batch_norm.h"

#include "kernels/cuda/ops/norm/batch_norm_columns.h"

namespace sluice::cuda {
namespace {

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
    if (both.count == C(0)) return a;
    const C weight = b.count / both.count;
    const C d = b.mean - a.mean;
    both.mean += d * weight;
    both.squares = a.squares + b.squares + d * d * (a.count * weight);
    return both;
  }
};

// Each thread takes its rows by Welford's recurrence (1962).
template <typename T>
__global__ void __launch_bounds__(kColumnThreads)
    MomentsKernel(BatchNormShape shape, int64_t segments, const T* x,
                  ComputeOf<T>* results, bool whole) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  FirstPass<T, Moments<C>>(
      shape, segments, results,
      [&](Moments<C>(&own)[kN], int64_t row, int64_t channel, int64_t count) {
        const Pack<T, kN> pack =
            LoadPack<T>(x + row * shape.channels + channel, count, whole);
        const C n = own[0].count + C(1);
        const C weight = C(1) / n;
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

template <typename C>
__global__ void __launch_bounds__(kColumnThreads)
    StatisticsKernel(BatchNormShape shape, int64_t segments, const C* results,
                     Statistics<C> s) {
  SecondPass<Moments<C>>(
      shape, segments, results, [&](const Moments<C>& m, int64_t c) {
        const C n = scalar::Maximum()(m.count, C(1));
        const C inv_std = C(1) / scalar::Sqrt()(m.squares / n +
                                                static_cast<C>(shape.epsilon));
        const C unbiased = m.squares / scalar::Maximum()(m.count - C(1), C(1));
        // An empty batch says nothing of the data.
        const C keep = m.count > C(0) ? static_cast<C>(shape.momentum) : C(1);
        s.mean[c] = m.mean;
        s.inv_std[c] = inv_std;
        s.new_mean[c] = keep * s.running_mean[c] + (1 - keep) * m.mean;
        s.new_variance[c] =
            keep * s.running_variance[c] + (1 - keep) * unbiased;
        s.factor[c] = inv_std * s.scale[c];
      });
}

// inv_std: given in place of the variance, or null.
template <typename C>
__global__ void FactorKernel(BatchNormShape shape, const C* scale,
                             const C* variance, const C* inv_std, C* factor) {
  for (int64_t c = GlobalThread(); c < shape.channels; c += GlobalThreads()) {
    factor[c] = inv_std != nullptr
                    ? inv_std[c] * scale[c]
                    : scale[c] / scalar::Sqrt()(variance[c] +
                                                static_cast<C>(shape.epsilon));
  }
}

template <typename T>
struct Normalized {
  const T* x;
  const T* addend;
  const ComputeOf<T>* mean;
  const ComputeOf<T>* factor;
  const ComputeOf<T>* offset;
  T* y;
  uint8_t* mask;
};

// y = (x - mean) * factor + offset + addend, and with a mask max(0, y).
template <typename T>
__global__ void NormalizeKernel(BatchNormShape shape, Normalized<T> o,
                                bool whole, bool octets) {
  using C = ComputeOf<T>;
  const int64_t n = shape.rows * shape.channels;
  for (int64_t i = GlobalThread() * kOctet; i < n;
       i += GlobalThreads() * kOctet) {
    const int64_t count = n - i;
    const auto x = LoadPack<T, kOctet>(o.x + i, count, whole);
    const auto mean = LoadChannels(o.mean, i, shape.channels, octets);
    const auto factor = LoadChannels(o.factor, i, shape.channels, octets);
    const auto offset = LoadChannels(o.offset, i, shape.channels, octets);
    Pack<T, kOctet> addend = {};
    if (o.addend != nullptr) {
      addend = LoadPack<T, kOctet>(o.addend + i, count, whole);
    }
    Pack<T, kOctet> y;
    unsigned bits = 0;
    for (int k = 0; k < kOctet; ++k) {
      C v =
          (static_cast<C>(x.at[k]) - mean.at[k]) * factor.at[k] + offset.at[k];
      if (o.addend != nullptr) v += static_cast<C>(addend.at[k]);
      if (o.mask != nullptr) {
        if (v > C(0) && k < count) bits |= 1u << k;
        v = scalar::Relu()(v);
      }
      y.at[k] = T(v);
    }
    StorePack(y, o.y + i, count, whole);
    if (o.mask != nullptr) o.mask[i / kOctet] = static_cast<uint8_t>(bits);
  }
}

template <typename T>
Status Normalize(const BatchNormShape& shape, const BatchNormOperands& o,
                 const void* mean, const ComputeOf<T>* factor,
                 cudaStream_t stream) {
  using C = ComputeOf<T>;
  const bool whole = OctetsAreWhole<T>(o.x, o.addend, o.y);
  const bool octets = OctetsOfChannels<C>(shape, mean, factor, o.offset);
  const Normalized<T> typed = {static_cast<const T*>(o.x),
                               static_cast<const T*>(o.addend),
                               static_cast<const C*>(mean),
                               factor,
                               static_cast<const C*>(o.offset),
                               static_cast<T*>(o.y),
                               o.mask};
  return Launch("BatchNorm normalize", OctetGrid(shape), stream,
                NormalizeKernel<T>, shape, typed, whole, octets);
}

template <typename T>
Status BatchNorm(const BatchNormShape& shape, const BatchNormOperands& o,
                 cudaStream_t stream) {
  using C = ComputeOf<T>;
  const int64_t segments = SegmentsOf(shape);
  const Workspace<C> work(shape, o.workspace);
  SLUICE_RETURN_IF_ERROR(
      Launch("BatchNorm moments", FirstPassGrid<T, Moments<C>>(shape), stream,
             MomentsKernel<T>, shape, segments, static_cast<const T*>(o.x),
             work.segments, ChannelsAreWhole<T>(shape, o.x)));
  const Statistics<C> statistics = {static_cast<const C*>(o.scale),
                                    static_cast<const C*>(o.running_mean),
                                    static_cast<const C*>(o.running_variance),
                                    static_cast<C*>(o.mean),
                                    static_cast<C*>(o.inv_std),
                                    static_cast<C*>(o.new_mean),
                                    static_cast<C*>(o.new_variance),
                                    work.factor};
  SLUICE_RETURN_IF_ERROR(
      Launch("BatchNorm statistics", SecondPassGrid<Moments<C>>(shape), stream,
             StatisticsKernel<C>, shape, segments, work.segments, statistics));
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
  return (2 * SegmentsOf(shape) + 3) * shape.channels *
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
