// Loops by hand. This file is compiled for the machine it is built on.
#include <algorithm>
#include <vector>

#include "bench/kernel_bench/peers.h"
#include "engine/cpu_features.h"
#include "engine/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::bench {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kLanes = kBytes / 4;
constexpr int64_t kGrain = 1 << 13;

using Vector __attribute__((vector_size(kBytes))) = float;
using Stored __attribute__((vector_size(kBytes), aligned(4), may_alias)) =
    float;

// y[i, i + kLanes) past the caches; y + i must be aligned.
void StoreStream(float* y, const Vector& value) {
#if defined(__AVX512F__)
  _mm512_stream_ps(y, reinterpret_cast<const __m512&>(value));
#elif defined(__AVX__)
  _mm256_stream_ps(y, reinterpret_cast<const __m256&>(value));
#elif defined(__x86_64__)
  _mm_stream_ps(y, reinterpret_cast<const __m128&>(value));
#else
  *reinterpret_cast<Stored*>(y) = value;
#endif
}

void Fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// y[i] = fn(loads at i), in vectors and for what is left one by one. The
// buffers are aligned to cache lines.
template <typename Fn, typename... X>
void Map(int64_t n, bool stream, float* y, Fn fn, const X*... x) {
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Vector value =
          fn(Vector(*reinterpret_cast<const Stored*>(x + i))...);
      if (stream) {
        StoreStream(y + i, value);
      } else {
        *reinterpret_cast<Stored*>(y + i) = value;
      }
    }
    for (; i < end; ++i) y[i] = fn(x[i]...);
    if (stream) Fence();
  });
}

template <typename T>
T Positive(T x) {
  return x > 0 ? x : x - x;
}

}  // namespace

double MultiplyAdd(int64_t rounds) {
  constexpr int kChains = 12;  // covers a latency of 4 on two units, and more
  Vector sum[kChains];
  // All alike, which the compiler must not know.
  for (Vector& s : sum) {
    s = Vector{};
    asm volatile("" : "+m"(s));
  }
  Vector a = Vector{} + 0.999f;
  Vector b = Vector{} + 0.5f;
  asm volatile("" : "+m"(a), "+x"(b));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * a + b;
  }
  Vector total = {};
  for (const Vector& s : sum) total += s;
  asm volatile("" : : "m"(total));
  return 2.0 * kChains * kLanes;
}

bool Streams(int64_t bytes) {
  return bytes > std::max<int64_t>(Cpu().l3_bytes, 1 << 24);
}

void CopyLoop(const float* x, float* y, int64_t n, bool stream) {
  Map(
      n, stream, y, [](auto v) { return v; }, x);
}
void ScaleLoop(float* x, int64_t n) {
  Map(
      n, false, x, [](auto v) { return v * 0.999f; }, x);
}
void AddLoop(const float* a, const float* b, float* y, int64_t n) {
  Map(
      n, Streams(n * 4), y, [](auto u, auto v) { return u + v; }, a, b);
}
void ReluLoop(const float* x, float* y, int64_t n) {
  Map(
      n, Streams(n * 4), y, [](auto v) { return Positive(v); }, x);
}
void ChainLoop(const float* x, const float* a, float s, float t, float* y,
               int64_t n) {
  Map(
      n, Streams(n * 4), y,
      [s, t](auto u, auto v) {
        const auto w = (u * v + s) * t - u;
        return Positive(w) * v;
      },
      x, a);
}

double SumLoop(const float* x, int64_t n) {
  const int64_t block = kGrain;
  std::vector<double> sums((n + block - 1) / block);
  ParallelFor(n, block, [&](int64_t begin, int64_t end) {
    Vector sum[4] = {};
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        sum[k] += *reinterpret_cast<const Stored*>(x + i + k * kLanes);
      }
    }
    const Vector all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += all[lane];
    for (; i < end; ++i) total += x[i];
    sums[begin / block] = static_cast<double>(total);
  });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

void ColumnSumLoop(const float* x, int64_t rows, int64_t columns, float* sum) {
  const int64_t block = std::max<int64_t>(kGrain / columns, 1);
  std::vector<float> sums((rows + block - 1) / block * columns);
  ParallelFor(rows, block, [&](int64_t begin, int64_t end) {
    float* __restrict part = sums.data() + begin / block * columns;
    for (int64_t r = begin; r < end; ++r) {
      const float* __restrict row = x + r * columns;
      for (int64_t c = 0; c < columns; ++c) part[c] += row[c];
    }
  });
  std::fill(sum, sum + columns, 0.0f);
  for (size_t i = 0; i < sums.size(); ++i) {
    sum[static_cast<int64_t>(i) % columns] += sums[i];
  }
}

void SgdLoop(const float* g, float* p, float rate, int64_t n) {
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p[i] -= rate * g[i];
  });
}

void MomentumLoop(const float* g, float* v, float* p, float rate,
                  float momentum, int64_t n) {
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    const float* __restrict gradient = g;
    float* __restrict velocity = v;
    float* __restrict parameter = p;
    for (int64_t i = begin; i < end; ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      parameter[i] -= rate * velocity[i];
    }
  });
}

Subject LoopPeer(const std::function<void()>& run,
                 std::vector<Tensor> results) {
  Subject peer;
  peer.provider = "loop";
  peer.run = run;
  peer.results = std::move(results);
  return peer;
}

}  // namespace sluice::bench
