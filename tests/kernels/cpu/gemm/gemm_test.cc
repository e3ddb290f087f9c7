#include "kernels/cpu/gemm/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/threads.h"
#include "kernels/cpu/simd/simd.h"
#include "tests/support/kernel_run.h"

namespace sluice {
namespace {

// A product with its operands, strides a little larger than needed, and NaN
// wherever nothing may be read or written.
template <typename T>
struct Case {
  Gemm<T> gemm;
  bool accumulate = false;  // the addend is C itself
  std::vector<T> a, b, c, bias;
  std::vector<char> workspace;

  Case(int64_t m, int64_t n, int64_t k, bool ta, bool tb, uint32_t seed) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<T>& v, int64_t rows, int64_t columns,
                          int64_t stride) {
      v.assign(rows * stride, std::numeric_limits<T>::quiet_NaN());
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          v[i * stride + j] = T(int(random() % 2001) - 1000) / T(1000);
        }
      }
    };
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.transpose_a = ta;
    gemm.transpose_b = tb;
    gemm.lda = (ta ? m : k) + 3;
    gemm.ldb = (tb ? k : n) + 5;
    gemm.ldc = n + 7;
    fill(a, ta ? k : m, ta ? m : k, gemm.lda);
    fill(b, tb ? n : k, tb ? k : n, gemm.ldb);
    fill(c, m, n, gemm.ldc);
    fill(bias, 1, n, n);
    gemm.a = a.data();
    gemm.b = b.data();
  }

  void Run() {
    gemm.c = c.data();
    if (accumulate) gemm.addend = gemm.c;
    const size_t bytes = GemmWorkspace(gemm);
    workspace.assign(bytes + 128, 0);
    void* space = workspace.data();
    size_t room = workspace.size();
    std::align(64, bytes, space, room);
    std::memset(space, 0xff, bytes);  // NaN
    RunGemm(gemm, space);
    // Nothing past the workspace was written.
    const char* past = static_cast<char*>(space) + bytes;
    const char* end = workspace.data() + workspace.size();
    REQUIRE(std::all_of(past, end, [](char x) { return x == 0; }));
  }

  // The largest error of C against double arithmetic, in units of the
  // rounding error that a sum of k such products may have.
  double Error(const std::vector<T>& before) const {
    double worst = 0;
    for (int64_t i = 0; i < gemm.m; ++i) {
      for (int64_t j = 0; j < gemm.ldc; ++j) {
        const T got = c[i * gemm.ldc + j];
        if (j >= gemm.n) {
          if (!std::isnan(got)) return 1e9;
          continue;
        }
        double sum =
            gemm.addend != nullptr ? double(before[i * gemm.ldc + j]) : 0;
        double magnitude = std::abs(sum) + 1;
        for (int64_t p = 0; p < gemm.k; ++p) {
          const double x =
              gemm.transpose_a ? a[p * gemm.lda + i] : a[i * gemm.lda + p];
          const double y =
              gemm.transpose_b ? b[j * gemm.ldb + p] : b[p * gemm.ldb + j];
          sum += x * y;
          magnitude += std::abs(x * y);
        }
        if (gemm.bias != nullptr) sum += double(bias[j]);
        if (gemm.relu) sum = std::max(sum, 0.0);
        const double unit = std::numeric_limits<T>::epsilon() * magnitude;
        worst = std::max(worst, std::abs(double(got) - sum) / unit);
      }
    }
    return worst;
  }
};

struct Size {
  int64_t m, n, k;
};

template <typename T>
void CheckCase(int64_t m, int64_t n, int64_t k, uint32_t variant) {
  Case<T> c(m, n, k, variant & 1, variant & 2, variant + 7);
  c.accumulate = variant & 4;
  if (variant & 8) c.gemm.bias = c.bias.data();
  c.gemm.relu = variant & 16;
  const std::vector<T> before = c.c;
  c.Run();
  INFO("m=" << m << " n=" << n << " k=" << k << " variant=" << variant);
  // Blocks of 256 keep the error far below the bound of a plain sum.
  CHECK(c.Error(before) < 4 + std::sqrt(double(k)));
}

TEST_CASE("products of every small size, in every form") {
  for (int64_t m : {1, 2, 5, 6, 7, 12, 13, 25}) {
    for (int64_t n : {1, 3, 8, 15, 16, 17, 32, 33, 47}) {
      for (int64_t k : {1, 2, 9, 64}) {
        for (uint32_t variant = 0; variant < 32; ++variant) {
          CheckCase<float>(m, n, k, variant);
        }
      }
    }
  }
}

TEST_CASE("products in double") {
  for (uint32_t variant = 0; variant < 32; ++variant) {
    CheckCase<double>(7, 9, 11, variant);
    CheckCase<double>(101, 35, 300, variant);
  }
}

TEST_CASE("sizes at and around the blocks") {
  for (uint32_t variant : {0u, 1u, 2u, 3u, 31u}) {
    for (int64_t k : {255, 256, 257, 513}) {
      CheckCase<float>(97, 49, k, variant);
    }
    CheckCase<float>(100, 128, 784, variant);
    CheckCase<float>(784, 128, 100, variant);
    CheckCase<float>(193, 300, 40, variant);
    CheckCase<float>(5, 1000, 300, variant);
    CheckCase<float>(130, 5000, 260, variant);  // several packings of B
  }
  CheckCase<float>(8, 4100, 1030, 2);  // also along k
}

TEST_CASE("a long k is cut into slices") {
  for (uint32_t variant : {0u, 1u, 2u, 3u, 30u, 31u}) {
    CheckCase<float>(25, 32, 20000, variant);
    CheckCase<float>(60, 40, 9001, variant);
    CheckCase<float>(200, 40, 9001, variant);
    CheckCase<double>(10, 70, 12345, variant);
  }
}

TEST_CASE("a longer k takes several rounds") {
  for (uint32_t variant = 0; variant < 32; ++variant) {
    CheckCase<float>(3, 5, 40000, variant);
    CheckCase<double>(3, 5, 40000, variant);
  }
  for (uint32_t variant : {0u, 3u, 30u}) {
    CheckCase<float>(4, 16, 300000, variant);  // of slices
  }
}

// A matrix of one number.
template <typename T>
void ReadConstant(const void* self, int64_t /*row*/, int64_t /*column*/,
                  int64_t count, T* out) {
  std::fill_n(out, count, *static_cast<const T*>(self));
}

// Terms that are all alike, whose roundings add up; `units` of the last digit.
template <typename T>
void CheckDigits(Size size, uint32_t variant, double units) {
  const T value = T(0.1), one = T(1);
  Case<T> c(size.m, size.n, 1, variant & 1, variant & 2, 3);
  c.gemm.k = size.k;
  c.gemm.read_a = {ReadConstant<T>, &value};
  c.gemm.read_b = {ReadConstant<T>, &one};
  Tensor packed;
  if (variant & 4) {
    packed = PackB(c.gemm);
    c.gemm.packed_b = packed.data<T>();
  }
  c.Run();
  const long double wanted = static_cast<long double>(size.k) * value;
  double worst = 0;
  for (int64_t i = 0; i < size.m; ++i) {
    for (int64_t j = 0; j < size.n; ++j) {
      const auto error =
          static_cast<double>(std::abs(c.c[i * c.gemm.ldc + j] / wanted - 1));
      worst = std::max(worst, std::isnan(error) ? INFINITY : error);
    }
  }
  INFO("m=" << size.m << " n=" << size.n << " k=" << size.k);
  CHECK(worst < units * std::numeric_limits<T>::epsilon());
}

TEST_CASE("a very long k keeps the digits of its terms") {
  for (int64_t m : {1, 2, 8}) {
    for (int64_t n : {1, 2, 8}) {
      const uint32_t variant = m == n ? 1 : 2;
      CheckDigits<float>({m, n, int64_t{1} << 20}, variant, 40);
      CheckDigits<double>({m, n, int64_t{1} << 20}, variant, 64);
    }
  }
  CheckDigits<float>({1, 1, int64_t{1} << 22}, 0, 40);
  CheckDigits<double>({2, 8, int64_t{1} << 22}, 0, 64);
  CheckDigits<float>({100, 260, 20000}, 4, 40);  // tasks side by side
}

TEST_CASE("an addend beside C gives the bits of one in its place") {
  for (auto [m, n, k] : {Size{7, 33, 40}, Size{97, 49, 513}, Size{25, 32, 9000},
                         Size{7, 33, 40000}}) {
    Case<float> in_place(m, n, k, false, false, 4), beside(in_place);
    in_place.accumulate = true;
    const std::vector<float> addend = beside.c;
    std::fill(beside.c.begin(), beside.c.end(), NAN);
    beside.gemm.a = beside.a.data();
    beside.gemm.b = beside.b.data();
    beside.gemm.addend = addend.data();
    in_place.Run();
    beside.Run();
    CHECK(std::memcmp(beside.c.data(), in_place.c.data(),
                      beside.c.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("no terms: the product is zero") {
  Case<float> c(3, 4, 0, false, false, 1);
  c.Run();
  CHECK(c.Error(c.c) == 0);
  c.gemm.bias = c.bias.data();
  c.accumulate = true;
  c.gemm.relu = true;
  const std::vector<float> before = c.c;
  c.Run();
  CHECK(c.Error(before) < 1);
}

TEST_CASE("infinity and NaN stay in their row and column") {
  for (bool relu : {false, true}) {
    Case<float> c(20, 40, 30, false, false, 3);
    c.gemm.relu = relu;
    c.a[7 * c.gemm.lda + 2] = std::numeric_limits<float>::quiet_NaN();
    c.b[5 * c.gemm.ldb + 33] = std::numeric_limits<float>::infinity();
    c.Run();
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t j = 0; j < 40; ++j) {
        const float x = c.c[i * c.gemm.ldc + j];
        if (i == 7) {
          CHECK(std::isnan(x));
        } else {
          CHECK(std::isfinite(x) == (j != 33 || (relu && x == 0)));
        }
      }
    }
  }
}

// Reads a stored matrix through the interface for computed ones.
struct Stored {
  const float* data;
  int64_t stride;
  static void Read(const void* self, int64_t row, int64_t column, int64_t count,
                   float* out) {
    const Stored& m = *static_cast<const Stored*>(self);
    std::memcpy(out, m.data + row * m.stride + column, count * sizeof(float));
  }
};

TEST_CASE("operands that are read, not stored, give the same bits") {
  for (uint32_t variant = 0; variant < 4; ++variant) {
    for (auto [m, n, k] : {Size{100, 70, 600}, Size{13, 200, 64},
                           Size{300, 33, 257}, Size{25, 32, 9000}}) {
      Case<float> stored(m, n, k, variant & 1, variant & 2, variant);
      stored.Run();
      for (int which : {1, 2, 3}) {
        Case<float> read(m, n, k, variant & 1, variant & 2, variant);
        const Stored a{read.a.data(), read.gemm.lda};
        const Stored b{read.b.data(), read.gemm.ldb};
        if (which & 1) read.gemm.read_a = {Stored::Read, &a};
        if (which & 2) read.gemm.read_b = {Stored::Read, &b};
        if (which & 1) read.gemm.a = nullptr;
        if (which & 2) read.gemm.b = nullptr;
        read.Run();
        CHECK(std::memcmp(read.c.data(), stored.c.data(),
                          stored.c.size() * sizeof(float)) == 0);
      }
    }
  }
}

// Sizes that are and are not whole panels, several blocks of k and of columns,
// few rows and many.
const Size kPackedSizes[] = {{1, 1, 1},        {1, 1000, 300}, {7, 33, 257},
                             {13, 200, 64},    {49, 130, 515}, {97, 70, 256},
                             {130, 5000, 260}, {60, 40, 3001}, {3, 17, 5000},
                             {3, 17, 40000}};

TEST_CASE("a B packed beforehand gives what it gives unpacked") {
  for (auto [m, n, k] : kPackedSizes) {
    for (uint32_t variant = 0; variant < 32; ++variant) {
      if (variant > 3 && m * n * k > 1'000'000) continue;
      INFO("m=" << m << " n=" << n << " k=" << k << " variant=" << variant);
      Case<float> c(m, n, k, variant & 1, variant & 2, variant);
      const Tensor packed = PackB(c.gemm);
      c.gemm.packed_b = packed.data<float>();
      std::fill(c.b.begin(), c.b.end(), NAN);
      c.gemm.b = nullptr;
      c.accumulate = variant & 4;
      if (variant & 8) c.gemm.bias = c.bias.data();
      c.gemm.relu = variant & 16;

      Case<float> plain(m, n, k, variant & 1, variant & 2, variant);
      plain.accumulate = c.accumulate;
      if (variant & 8) plain.gemm.bias = plain.bias.data();
      plain.gemm.relu = c.gemm.relu;
      const std::vector<float> before = plain.c;
      c.Run();
      plain.Run();
      // Where k is cut into slices, the sums are in another order.
      if (k < 2048) {
        CHECK(std::memcmp(c.c.data(), plain.c.data(),
                          c.c.size() * sizeof(float)) == 0);
      }
      c.b = plain.b;
      CHECK(c.Error(before) < 4 + std::sqrt(double(k)));
    }
  }
}

TEST_CASE("a B packed beforehand: the same bits for any number of threads") {
  for (auto [m, n, k] : kPackedSizes) {
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      SetComputeThreads(threads);
      Case<float> c(m, n, k, false, true, 5);
      const Tensor packed = PackB(c.gemm);
      c.gemm.packed_b = packed.data<float>();
      c.Run();
      if (first.empty()) first = c.c;
      CHECK(std::memcmp(c.c.data(), first.data(),
                        first.size() * sizeof(float)) == 0);
    }
  }
  SetComputeThreads(0);
}

TEST_CASE("the same bits for any number of threads") {
  for (auto [m, n, k] :
       {Size{100, 128, 784}, Size{300, 300, 300}, Size{25, 32, 20000},
        Size{17, 2000, 500}, Size{4, 16, 300000}}) {
    std::vector<float> first;
    for (int threads : {1, 2, 3, 2}) {
      SetComputeThreads(threads);
      Case<float> c(m, n, k, false, true, 5);
      c.Run();
      if (first.empty()) first = c.c;
      CHECK(std::memcmp(c.c.data(), first.data(),
                        first.size() * sizeof(float)) == 0);
    }
  }
  SetComputeThreads(0);
}

TEST_CASE("a batch may have any number of empty matrices") {
  constexpr int64_t kBatch = int64_t{1} << 40;
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    KernelSpec spec;
    spec.op = "BatchMatMul";
    spec.node = "product";
    spec.inputs = {TensorType{dtype, {kBatch, 0, 3}},
                   TensorType{dtype, {3, 5}}};
    spec.outputs = {TensorType{dtype, {kBatch, 0, 5}}};
    spec.attrs.Set("transpose_a", false);
    spec.attrs.Set("transpose_b", false);
    const std::vector<Tensor> inputs = {Tensor(dtype, spec.inputs[0].shape),
                                        Tensor::Zeros(dtype, {3, 5})};
    for (const KernelDef* def :
         KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
      CAPTURE(def->provider);
      const Tensor product = testing::RunKernel(*def, spec, inputs)[0];
      CHECK(product.shape() == spec.outputs[0].shape);
    }
  }
}

}  // namespace
}  // namespace sluice
