// Every vector kernel of every instruction set this machine has, against the
// scalar functions and double arithmetic.
#include "kernels/cpu/simd/simd.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/dtype.h"
#include "engine/semantics/scalar.h"

// The matrix product on 64-byte vectors, which any machine can run, as several
// narrower ones.
#pragma GCC diagnostic ignored "-Wpsabi"
#define SLUICE_ISA wide_vectors
#define SLUICE_VECTOR_BYTES 64
#include "kernels/cpu/simd/gemm_micro.h"
#undef SLUICE_ISA
#undef SLUICE_VECTOR_BYTES

namespace sluice {
namespace {

using simd::OptimizerStep;
using simd::SimdKernels;

std::vector<const SimdKernels*> Tables() {
  std::vector<const SimdKernels*> tables;
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (const SimdKernels* table = SimdFor(isa)) tables.push_back(table);
  }
  return tables;
}

std::vector<float> Random(int64_t n, uint32_t seed, float low = -3,
                          float high = 3) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(n);
  for (float& x : values) x = uniform(random);
  return values;
}

// Values at which functions tend to go wrong, then ordinary ones.
template <typename T>
std::vector<T> Inputs(int64_t n, uint32_t seed) {
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> x = {0,   T(-0.0), 1,         -1,       T(0.5), 6,  100,
                      -90, 2e6,     -infinity, infinity, NAN,    -2, T(2.5)};
  for (float v : Random(n, seed, -5, 5)) x.push_back(T(v));
  x.resize(n);
  return x;
}

// The same up to the roundings that fused multiply-adds save, for a result
// that came from operands of the given magnitude.
template <typename T>
bool Same(T got, T expected, T magnitude) {
  if (std::isnan(expected)) return std::isnan(got);
  if (got == expected) return true;
  if (!std::isfinite(magnitude)) magnitude = 0;
  const T scale = std::max({std::abs(expected), T(1), magnitude});
  return std::abs(got - expected) <=
         8 * std::numeric_limits<T>::epsilon() * scale;
}
template <typename T>
bool Same(bool got, bool expected, T) {
  return got == expected;
}

constexpr simd::OpParams kParams{0.25, 1.5};

// Room for n results with a byte pattern on either side of them.
template <typename Out>
class Guarded {
 public:
  explicit Guarded(int64_t n) : n_(n), bytes_((n + 2) * sizeof(Out), 0x5a) {}
  Out* data() { return reinterpret_cast<Out*>(bytes_.data()) + 1; }
  bool intact() const {
    return bytes_[sizeof(Out) - 1] == 0x5a &&
           bytes_[(n_ + 1) * sizeof(Out)] == 0x5a;
  }

 private:
  int64_t n_;
  std::vector<unsigned char> bytes_;
};

template <typename T, typename Out>
void CheckUnary(simd::UnaryFn fn, void (*scalar_op)(T, Out*)) {
  for (int64_t n : {0, 1, 3, 14, 16, 31, 33, 300}) {
    const std::vector<T> x = Inputs<T>(n, 1);
    Guarded<Out> y(n);
    fn(x.data(), y.data(), n, kParams);
    CHECK(y.intact());
    for (int64_t i = 0; i < n; ++i) {
      Out expected;
      scalar_op(x[i], &expected);
      if (!Same(y.data()[i], expected, T(1))) {
        FAIL_CHECK("x = " << x[i] << ": got " << y.data()[i] << ", not "
                          << expected);
      }
    }
    if constexpr (std::is_same_v<T, Out>) {
      std::vector<T> in_place = x;
      fn(in_place.data(), in_place.data(), n, kParams);
      const bool same =
          n == 0 || std::memcmp(in_place.data(), y.data(), n * sizeof(T)) == 0;
      CHECK(same);
    }
  }
}

template <typename T, typename Out>
void CheckBinary(const simd::BinaryFns& fns, void (*scalar_op)(T, T, Out*)) {
  for (int64_t n : {1, 14, 33, 100}) {
    const std::vector<T> a = Inputs<T>(n, 2);
    std::vector<T> b = Inputs<T>(n, 3);
    std::reverse(b.begin(), b.end());
    const std::vector<T> one(n, T(1.75));
    const auto check = [&](simd::BinaryFn fn, const std::vector<T>& left,
                           const std::vector<T>& right) {
      Guarded<Out> y(n);
      fn(left.data(), right.data(), y.data(), n, kParams);
      CHECK(y.intact());
      for (int64_t i = 0; i < n; ++i) {
        Out expected;
        scalar_op(left[i], right[i], &expected);
        const T magnitude = std::max(std::abs(left[i]), std::abs(right[i]));
        if (!Same(y.data()[i], expected, magnitude)) {
          FAIL_CHECK("a = " << left[i] << ", b = " << right[i] << ": got "
                            << y.data()[i] << ", not " << expected);
        }
      }
    };
    check(fns.vector_vector, a, b);
    check(fns.vector_scalar, a, one);
    check(fns.scalar_vector, one, b);
  }
}

// An op on one or two values of T, as a plain function.
template <typename Op, typename... T>
auto ScalarOp() {
  using Out = decltype(Op()(T()...));
  return +[](T... x, Out* y) {
    *y = scalar::MakeOp<Op>(kParams.a, kParams.b)(x...);
  };
}

template <typename... Ops>
void CheckAllUnary(const SimdKernels& table, scalar::OpList<Ops...>) {
  const auto check = [&]<typename Op>(Op) {
    const std::string name = Op::kName;
    CAPTURE(name);
    const simd::UnaryEntry* end = table.unary + table.num_unary;
    const simd::UnaryEntry* entry = std::find_if(
        table.unary, end, [&](const auto& e) { return e.name == name; });
    REQUIRE(bool(entry != end));
    CheckUnary(entry->f32, ScalarOp<Op, float>());
    CheckUnary(entry->f64, ScalarOp<Op, double>());
  };
  (check(Ops()), ...);
}

template <typename... Ops>
void CheckAllBinary(const SimdKernels& table, scalar::OpList<Ops...>) {
  const auto check = [&]<typename Op>(Op) {
    const std::string name = Op::kName;
    CAPTURE(name);
    const simd::BinaryEntry* end = table.binary + table.num_binary;
    const simd::BinaryEntry* entry = std::find_if(
        table.binary, end, [&](const auto& e) { return e.name == name; });
    REQUIRE(bool(entry != end));
    CheckBinary(entry->f32, ScalarOp<Op, float, float>());
    CheckBinary(entry->f64, ScalarOp<Op, double, double>());
  };
  (check(Ops()), ...);
}

TEST_CASE("elementwise loops agree with the scalar functions") {
  for (const SimdKernels* table : Tables()) {
    CAPTURE(std::string(table->isa));
    CheckAllUnary(*table, scalar::UnaryOps());
    CheckAllUnary(*table, scalar::UnaryPredicates());
    CheckAllBinary(*table, scalar::BinaryOps());
    CheckAllBinary(*table, scalar::BinaryPredicates());
  }
}

TEST_CASE("loops are found by name and dtype") {
  const float x = 3;
  float y = 0;
  FindUnary("Square", DType::kFloat32)(&x, &y, 1, {});
  CHECK(y == 9);
  CHECK(bool(FindUnary("Square", DType::kInt32) == nullptr));
  CHECK(bool(FindUnary("Add", DType::kFloat32) == nullptr));
  FindBinary("Sub", DType::kFloat32).vector_vector(&x, &y, &y, 1, {});
  CHECK(y == -6);
  CHECK(bool(FindBinary("Nothing", DType::kFloat64).vector_vector == nullptr));
  CHECK(SimdFor("pentium") == nullptr);
  CHECK(SimdFor(Simd().isa) == &Simd());
}

TEST_CASE("reductions") {
  for (const SimdKernels* table : Tables()) {
    CAPTURE(std::string(table->isa));
    for (int64_t n : {0, 1, 7, 16, 65, 130, 4099}) {
      const std::vector<float> x = Random(n, 4);
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
        squares += double(x[i]) * x[i];
      }
      const double bound = 1e-6 * (1 + std::sqrt(double(n)) * 3);
      CHECK(std::abs(table->sum(x.data(), n) - sum) < 10 * bound);
      CHECK(std::abs(table->sum_squares(x.data(), n) - squares) <
            1e-13 * squares + 1e-30);
      const std::vector<double> d(x.begin(), x.end());
      CHECK(std::abs(table->sum_f64(d.data(), n) - sum) < 1e-11);
      if (n == 0) continue;
      CHECK(table->max(x.data(), n) == *std::max_element(x.begin(), x.end()));
      CHECK(table->min(x.data(), n) == *std::min_element(x.begin(), x.end()));
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        std::vector<float> holed = x;
        holed[at] = NAN;
        CHECK(std::isnan(table->max(holed.data(), n)));
        CHECK(std::isnan(table->min(holed.data(), n)));
      }
    }
    const std::vector<float> large(21, 3e20F);  // whose squares no float holds
    CHECK(table->sum_squares(large.data(), 21) == doctest::Approx(1.89e42));
    std::vector<float> y = {1, 2, 3};
    const std::vector<float> x = {10, 20, 30};
    table->axpy(0.5f, x.data(), y.data(), 3);
    CHECK(y == std::vector<float>{6, 12, 18});
  }
}

TEST_CASE("softmax, its logarithm and its normaliser") {
  for (const SimdKernels* table : Tables()) {
    CAPTURE(std::string(table->isa));
    for (int64_t columns : {1, 2, 10, 16, 127, 128, 129, 1000, 3001}) {
      const int64_t rows = 3;
      std::vector<float> x = Random(rows * columns, 6, -20, 20);
      x[0] = -std::numeric_limits<float>::infinity();
      if (columns == 1) x[0] = 4;
      std::vector<float> y(x.size()), log_y(x.size()), norm(rows);
      table->softmax(x.data(), y.data(), rows, columns);
      table->log_softmax(x.data(), log_y.data(), rows, columns);
      table->log_sum_exp(x.data(), norm.data(), rows, columns);
      std::vector<float> max(rows), sum_exp(rows);
      table->sum_exp(x.data(), max.data(), sum_exp.data(), rows, columns);
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t j = 0; j < columns; ++j) {
          sum += std::exp(double(x[r * columns + j]));
        }
        CHECK(norm[r] == doctest::Approx(std::log(sum)).epsilon(1e-6));
        const float* row = &x[r * columns];
        CHECK(max[r] == *std::max_element(row, row + columns));
        CHECK(sum_exp[r] * std::exp(double(max[r])) ==
              doctest::Approx(sum).epsilon(1e-6));
        for (int64_t j = 0; j < columns; ++j) {
          const double exact = std::exp(double(x[r * columns + j])) / sum;
          CHECK(std::abs(y[r * columns + j] - exact) < 5e-6 * exact + 1e-37);
          const float got = log_y[r * columns + j];
          if (exact == 0) {
            CHECK(got == -std::numeric_limits<float>::infinity());
          } else {
            CHECK(std::abs(got - std::log(exact)) < 1e-5);
          }
        }
      }
      std::vector<float> in_place = x;
      table->softmax(in_place.data(), in_place.data(), rows, columns);
      CHECK(in_place == y);
    }
    const std::vector<float> infinite(20,
                                      -std::numeric_limits<float>::infinity());
    float norm = 0;
    table->log_sum_exp(infinite.data(), &norm, 1, 20);
    CHECK(norm == -std::numeric_limits<float>::infinity());
  }
}

TEST_CASE("bias and its gradient") {
  for (const SimdKernels* table : Tables()) {
    CAPTURE(std::string(table->isa));
    for (int64_t columns : {1, 10, 32, 70, 133}) {
      const int64_t rows = 1300;
      const std::vector<float> x = Random(rows * columns, 7);
      const std::vector<float> bias = Random(columns, 8);
      std::vector<float> y(x.size());
      for (bool relu : {false, true}) {
        table->bias_add(x.data(), bias.data(), y.data(), rows, columns, relu);
        int64_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const float sum = x[i] + bias[i % columns];
          wrong += y[i] != (relu && sum < 0 ? 0 : sum);
        }
        CHECK(wrong == 0);
      }
      std::vector<float> sums(columns, 1000.0f);
      for (bool accumulate : {false, true}) {
        table->column_sums(x.data(), sums.data(), rows, columns, accumulate);
        for (int64_t j = 0; j < columns; ++j) {
          double exact = 0;
          for (int64_t r = 0; r < rows; ++r) exact += x[r * columns + j];
          if (accumulate) exact *= 2;
          CHECK(std::abs(sums[j] - exact) < 2e-3);
        }
      }
    }
  }
}

// Of one sign, so that a running sum has ever fewer digits for what is added.
TEST_CASE("sums of columns keep the digits of very many rows") {
  constexpr int64_t kRows = 4096;
  for (const SimdKernels* table : Tables()) {
    CAPTURE(std::string(table->isa));
    for (int64_t columns : {1, 8, 70}) {
      const std::vector<float> x(kRows * columns, 0.1f);
      std::vector<float> sums(columns);
      table->column_sums(x.data(), sums.data(), kRows, columns, false);
      for (const float sum : sums) {
        CHECK(std::abs(sum / (kRows * double{0.1f}) - 1) < 2e-6);
      }
    }
  }
}

// Ten steps of one optimizer in double, as PyTorch's documentation states it;
// two slots s and v.
template <typename Step>
void CheckOptimizer(const char* name, const Step& exact,
                    void (*run)(const SimdKernels&, const OptimizerStep&,
                                const float* g, float* s, float* v, float* p,
                                int64_t n),
                    OptimizerStep step) {
  constexpr int64_t kSize = 53;
  for (const SimdKernels* table : Tables()) {
    std::vector<float> p = Random(kSize, 9), s(kSize, 0), v(kSize, 0);
    std::vector<double> p_exact(p.begin(), p.end()), s_exact(kSize, 0),
        v_exact(kSize, 0);
    for (int t = 1; t <= 10; ++t) {
      step.correction1 = float(1 - std::pow(step.beta1, t));
      step.correction2 = float(1 - std::pow(step.beta2, t));
      const std::vector<float> g = Random(kSize, 100 + t);
      run(*table, step, g.data(), s.data(), v.data(), p.data(), kSize);
      for (int64_t i = 0; i < kSize; ++i) {
        exact(step, g[i], s_exact[i], v_exact[i], p_exact[i]);
      }
    }
    for (int64_t i = 0; i < kSize; ++i) {
      INFO(std::string(table->isa) << " " << name);
      CHECK(p[i] == doctest::Approx(p_exact[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("optimizer steps") {
  OptimizerStep step;
  step.learning_rate = 0.1f;
  step.momentum = 0.9f;
  step.decay = 0.95f;
  step.weight_decay = 0.01f;
  using S = const OptimizerStep&;
  CheckOptimizer(
      "sgd",
      [](S o, double g, double&, double&, double& p) {
        p -= o.learning_rate * g;
      },
      [](const SimdKernels& k, S o, const float* g, float*, float*, float* p,
         int64_t n) { k.sgd(o, g, p, n); },
      step);
  const auto momentum = [](S o, double g, double&, double& v, double& p) {
    v = o.momentum * v + g;
    p -= o.learning_rate * (o.nesterov ? g + o.momentum * v : v);
  };
  for (bool nesterov : {false, true}) {
    step.nesterov = nesterov;
    CheckOptimizer(
        "momentum", momentum,
        [](const SimdKernels& k, S o, const float* g, float*, float* v,
           float* p, int64_t n) { k.momentum(o, g, v, p, n); },
        step);
  }
  CheckOptimizer(
      "rmsprop",
      [](S o, double g, double& s, double& v, double& p) {
        s = o.decay * s + (1 - double(o.decay)) * g * g;
        v = o.momentum * v + g / (std::sqrt(s) + o.eps);
        p -= o.learning_rate * v;
      },
      [](const SimdKernels& k, S o, const float* g, float* s, float* v,
         float* p, int64_t n) { k.rmsprop(o, g, s, v, p, n); },
      step);
  CheckOptimizer(
      "rmsprop without momentum",
      [](S o, double g, double& s, double&, double& p) {
        s = o.decay * s + (1 - double(o.decay)) * g * g;
        p -= o.learning_rate * g / (std::sqrt(s) + o.eps);
      },
      [](const SimdKernels& k, S o, const float* g, float* s, float*, float* p,
         int64_t n) { k.rmsprop(o, g, s, nullptr, p, n); },
      step);
  CheckOptimizer(
      "adagrad",
      [](S o, double g, double& s, double&, double& p) {
        s += g * g;
        p -= o.learning_rate * g / (std::sqrt(s) + o.eps);
      },
      [](const SimdKernels& k, S o, const float* g, float* s, float*, float* p,
         int64_t n) { k.adagrad(o, g, s, p, n); },
      step);
  CheckOptimizer(
      "adamw",
      [](S o, double g, double& m, double& v, double& p) {
        p *= 1 - double(o.learning_rate) * o.weight_decay;
        m = o.beta1 * m + (1 - double(o.beta1)) * g;
        v = o.beta2 * v + (1 - double(o.beta2)) * g * g;
        p -= o.learning_rate * (m / o.correction1) /
             (std::sqrt(v / o.correction2) + o.eps);
      },
      [](const SimdKernels& k, S o, const float* g, float* m, float* v,
         float* p, int64_t n) { k.adam(o, g, m, v, p, n); },
      step);
}

TEST_CASE("the matrix product on 64-byte vectors") {
  using namespace wide_vectors;  // NOLINT: the kernels compiled above
  const int64_t m = 31, n = 70, k = 40;
  const std::vector<float> a = Random(m * k, 10), b = Random(k * n, 11);
  const std::vector<float> bias = Random(n, 12);
  const int64_t panel = k * kTileColumns<float>;
  std::vector<float> panels(3 * panel), packed_c(m * n, 1), direct_c(m * n, 1);
  CHECK(kTileColumns<float> == 32);
  CHECK(kTileRows == 12);
  PackB(b.data(), n, 1, k, n, panels.data(), panel);
  simd::GemmTile<float> tile;
  tile.m = m;
  tile.n = n;
  tile.k = k;
  tile.a = a.data();
  tile.a_row_stride = k;
  tile.a_column_stride = 1;
  tile.b = panels.data();
  tile.b_stride = panel;
  tile.b_packed = true;
  tile.c = packed_c.data();
  tile.addend = packed_c.data();
  tile.ldc = n;
  tile.relu = true;
  tile.bias = bias.data();
  Multiply(tile);
  tile.b = b.data();
  tile.b_stride = n;
  tile.b_packed = false;
  tile.c = direct_c.data();
  tile.addend = direct_c.data();
  Multiply(tile);
  CHECK(packed_c == direct_c);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 1 + double(bias[j]);
      for (int64_t p = 0; p < k; ++p)
        sum += double(a[i * k + p]) * b[p * n + j];
      CHECK(std::abs(packed_c[i * n + j] - std::max(sum, 0.0)) < 1e-4);
    }
  }
}

}  // namespace
}  // namespace sluice
