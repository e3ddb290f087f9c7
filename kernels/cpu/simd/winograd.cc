// Winograd's transforms, vectors of channels at a time; see winograd.h.
#include "kernels/cpu/simd/winograd.h"

#include "kernels/cpu/simd/gemm_micro.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::WinogradEpilogue;
using simd::WinogradMatrix;

inline constexpr int64_t kWidth = kTileColumns<float>;
inline constexpr float kA = 0.70710678118654752f;  // sqrt(1/2)
inline constexpr float kB = 1.41421356237309505f;  // sqrt(2)

// One side of each transform: kIn values to kOut.

struct SourceSide {  // B^T
  static constexpr int kIn = 6, kOut = 6;
  static SLUICE_INLINE void Apply(const Vector<float>* d, Vector<float>* v) {
    const Vector<float> a_even = d[4] - 2.0f * d[2];
    const Vector<float> a_odd = d[3] - 2.0f * d[1];
    const Vector<float> b_even = d[4] - 0.5f * d[2];
    const Vector<float> b_odd = d[3] - 0.5f * d[1];
    v[0] = d[0] + d[4] - 2.5f * d[2];
    v[1] = a_even + kA * a_odd;
    v[2] = a_even - kA * a_odd;
    v[3] = b_even + kB * b_odd;
    v[4] = b_even - kB * b_odd;
    v[5] = d[1] + d[5] - 2.5f * d[3];
  }
};

struct FilterSide {  // G
  static constexpr int kIn = 3, kOut = 6;
  static SLUICE_INLINE void Apply(const Vector<float>* g, Vector<float>* u) {
    const Vector<float> a_even = (-2 / 3.0f) * g[0] - (1 / 3.0f) * g[2];
    const Vector<float> b_even = (1 / 6.0f) * g[0] + (1 / 3.0f) * g[2];
    u[0] = g[0];
    u[1] = a_even - (kA * 2 / 3) * g[1];
    u[2] = a_even + (kA * 2 / 3) * g[1];
    u[3] = b_even + (kB / 6) * g[1];
    u[4] = b_even - (kB / 6) * g[1];
    u[5] = g[2];
  }
};

struct ResultSide {  // A^T
  static constexpr int kIn = 6, kOut = 4;
  static SLUICE_INLINE void Apply(const Vector<float>* m, Vector<float>* y) {
    const Vector<float> a_sum = m[1] + m[2], a_difference = m[1] - m[2];
    const Vector<float> b_sum = m[3] + m[4], b_difference = m[3] - m[4];
    y[0] = m[0] + a_sum + b_sum;
    y[1] = kA * a_difference + kB * b_difference;
    y[2] = 0.5f * a_sum + 2.0f * b_sum;
    y[3] = m[5] + (kA / 2) * a_difference + (kB * 2) * b_difference;
  }
};

struct ResultGradSide {  // A
  static constexpr int kIn = 4, kOut = 6;
  static SLUICE_INLINE void Apply(const Vector<float>* y, Vector<float>* w) {
    const Vector<float> a_even = y[0] + 0.5f * y[2];
    const Vector<float> a_odd = y[1] + 0.5f * y[3];
    const Vector<float> b_even = y[0] + 2.0f * y[2];
    const Vector<float> b_odd = y[1] + 2.0f * y[3];
    w[0] = y[0];
    w[1] = a_even + kA * a_odd;
    w[2] = a_even - kA * a_odd;
    w[3] = b_even + kB * b_odd;
    w[4] = b_even - kB * b_odd;
    w[5] = y[3];
  }
};

struct FilterGradSide {  // G^T
  static constexpr int kIn = 6, kOut = 3;
  static SLUICE_INLINE void Apply(const Vector<float>* u, Vector<float>* g) {
    const Vector<float> a_sum = u[1] + u[2], a_difference = u[1] - u[2];
    const Vector<float> b_sum = u[3] + u[4], b_difference = u[3] - u[4];
    g[0] = u[0] - (2 / 3.0f) * a_sum + (1 / 6.0f) * b_sum;
    g[1] = (kB / 6) * b_difference - (kA * 2 / 3) * a_difference;
    g[2] = u[5] - (1 / 3.0f) * a_sum + (1 / 3.0f) * b_sum;
  }
};

// Both sides, on the vectors of channels that in(i) addresses; store(i, value)
// takes the results.
template <typename Side, typename In, typename StoreFn>
SLUICE_INLINE void ApplyBothSides(const In& in, const StoreFn& store) {
  constexpr int kIn = Side::kIn, kOut = Side::kOut;
  Vector<float> half[kOut][kIn];
#pragma GCC unroll 6
  for (int j = 0; j < kIn; ++j) {
    Vector<float> column[kIn], transformed[kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) column[i] = Load(in(i * kIn + j));
    Side::Apply(column, transformed);
#pragma GCC unroll 6
    for (int i = 0; i < kOut; ++i) half[i][j] = transformed[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kOut; ++i) {
    Vector<float> row[kOut];
    Side::Apply(half[i], row);
#pragma GCC unroll 6
    for (int j = 0; j < kOut; ++j) store(i * kOut + j, row[j]);
  }
}

template <typename Side>
void IntoPoints(const float* const* in, int64_t channels,
                const WinogradMatrix& to) {
  float* panel = to.points;
  const int64_t step = to.point_step;
  for (int64_t c = 0; c < channels; c += kWidth, panel += to.panel_step) {
    for (int64_t lane = 0; lane < kWidth; lane += kLanes<float>) {
      ApplyBothSides<Side>([&](int i) { return in[i] + c + lane; },
                           [&](int i, Vector<float> value)
                               __attribute__((always_inline)) {
                                 Store(panel + i * step + lane, value);
                               });
    }
  }
}

template <typename Side>
void FromPoints(const WinogradMatrix& from, int64_t channels,
                float* const* out) {
  const float* panel = from.points;
  const int64_t step = from.point_step;
  for (int64_t c = 0; c < channels; c += kWidth, panel += from.panel_step) {
    for (int64_t lane = 0; lane < kWidth; lane += kLanes<float>) {
      ApplyBothSides<Side>([&](int i) { return panel + i * step + lane; },
                           [&](int i, Vector<float> value)
                               __attribute__((always_inline)) {
                                 Store(out[i] + c + lane, value);
                               });
    }
  }
}

template <bool kAddend, bool kRelu>
void FinishedResult(const WinogradMatrix& m, int64_t channels,
                    const WinogradEpilogue& epilogue, float* const* y) {
  const Vector<float> zero = {};
  const float* panel = m.points;
  for (int64_t c = 0; c < channels; c += kWidth, panel += m.panel_step) {
    for (int64_t lane = 0; lane < kWidth; lane += kLanes<float>) {
      const Vector<float> bias = Load(epilogue.bias + c + lane);
      ApplyBothSides<ResultSide>(
          [&](int i) { return panel + i * m.point_step + lane; },
          [&](int i, Vector<float> value) __attribute__((always_inline)) {
            value += bias;
            if constexpr (kAddend) value += Load(epilogue.addend[i] + c + lane);
            if constexpr (kRelu) value = zero > value ? zero : value;
            Store(y[i] + c + lane, value);
          });
    }
  }
}

void Result(const WinogradMatrix& m, int64_t channels,
            const WinogradEpilogue& epilogue, float* const* y) {
  if (epilogue.bias == nullptr) {
    FromPoints<ResultSide>(m, channels, y);
  } else if (epilogue.addend == nullptr) {
    (epilogue.relu ? FinishedResult<false, true>
                   : FinishedResult<false, false>)(m, channels, epilogue, y);
  } else {
    (epilogue.relu ? FinishedResult<true, true>
                   : FinishedResult<true, false>)(m, channels, epilogue, y);
  }
}

}  // namespace

void AddWinograd(simd::SimdKernels& table) noexcept {
  table.winograd = {IntoPoints<SourceSide>, IntoPoints<FilterSide>, Result,
                    IntoPoints<ResultGradSide>, FromPoints<FilterGradSide>};
}

}  // namespace sluice::SLUICE_ISA
