// Winograd's transforms, of every instruction set this machine has and on
// 64-byte vectors, against convolutions of one tile written from the
// definition.
#include "kernels/cpu/simd/winograd.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/simd/simd.h"

// The transforms on vectors that any machine can run as several narrower ones.
#pragma GCC diagnostic ignored "-Wpsabi"
#define SLUICE_ISA wide_vectors
#define SLUICE_VECTOR_BYTES 64
#include "kernels/cpu/simd/winograd.cc"  // NOLINT: its functions are internal
#undef SLUICE_ISA
#undef SLUICE_VECTOR_BYTES

namespace sluice {
namespace {

using simd::SimdKernels;
using simd::WinogradMatrix;

// The tables, with the panels' widths.
struct Transforms {
  const char* isa;
  int64_t width;
  simd::WinogradKernels kernels;
};
std::vector<Transforms> AllTransforms() {
  std::vector<Transforms> all;
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (const SimdKernels* table = SimdFor(isa)) {
      all.push_back({isa, table->gemm_f32.columns, table->winograd});
    }
  }
  SimdKernels wide = {};
  wide_vectors::AddWinograd(wide);
  all.push_back({"64 bytes", wide_vectors::kWidth, wide.winograd});
  return all;
}

// `count` pixels of some channels, and pointers to them.
struct Pixels {
  Pixels(int count, int64_t width, uint32_t seed) : channels(width) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    values.resize(count * channels);
    for (float& v : values) v = uniform(random);
    for (int i = 0; i < count; ++i) {
      pointers.push_back(values.data() + i * channels);
    }
  }
  double At(int pixel, int64_t channel) const {
    return pointers[pixel][channel];
  }
  const float* const* in() const { return pointers.data(); }
  float* const* out() const { return pointers.data(); }

  int64_t channels;
  std::vector<float> values;
  std::vector<float*> pointers;
};

// A transformed tile: a row of `panels` panels with room between them.
struct Points {
  Points(int64_t width, int64_t panels)
      : values(simd::kWinogradPoints * panels * (width + 3), NAN),
        matrix{values.data(), panels * (width + 3), width + 3} {}

  void MultiplyBy(const Points& other) {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= other.values[i];
  }

  std::vector<float> values;
  WinogradMatrix matrix;
};

TEST_CASE("transformed, multiplied and transformed back is convolution") {
  for (const Transforms& t : AllTransforms()) {
    INFO(t.isa);
    const int64_t channels = 3 * t.width;
    const Pixels d(36, channels, 1), g(9, channels, 2);
    const Pixels y(16, channels, 3);
    Points v(t.width, 3), u(t.width, 3);
    t.kernels.source(d.in(), channels, v.matrix);
    t.kernels.filter(g.in(), channels, u.matrix);
    v.MultiplyBy(u);
    t.kernels.result(v.matrix, channels, {}, y.out());
    double worst = 0;
    for (int64_t c = 0; c < channels; ++c) {
      for (int p = 0; p < 16; ++p) {
        double want = 0;
        for (int tap = 0; tap < 9; ++tap) {
          const int row = p / 4 + tap / 3, column = p % 4 + tap % 3;
          want += d.At(row * 6 + column, c) * g.At(tap, c);
        }
        worst = std::max(worst, std::abs(y.At(p, c) - want));
      }
    }
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("the gradient of a filter is that of convolution") {
  for (const Transforms& t : AllTransforms()) {
    INFO(t.isa);
    const int64_t channels = 2 * t.width;
    const Pixels d(36, channels, 4), dy(16, channels, 5);
    const Pixels dg(9, channels, 6);
    Points v(t.width, 2), w(t.width, 2);
    t.kernels.source(d.in(), channels, v.matrix);
    t.kernels.result_grad(dy.in(), channels, w.matrix);
    v.MultiplyBy(w);
    t.kernels.filter_grad(v.matrix, channels, dg.out());
    double worst = 0;
    for (int64_t c = 0; c < channels; ++c) {
      for (int tap = 0; tap < 9; ++tap) {
        double want = 0;
        for (int p = 0; p < 16; ++p) {
          const int row = p / 4 + tap / 3, column = p % 4 + tap % 3;
          want += d.At(row * 6 + column, c) * dy.At(p, c);
        }
        worst = std::max(worst, std::abs(dg.At(tap, c) - want));
      }
    }
    CHECK(worst < 1e-5);
  }
}

}  // namespace
}  // namespace sluice
