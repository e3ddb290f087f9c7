// The elementwise functions of every device: one stateless functor per op,
// under the op's name in the graph. Plain and fused kernels all come from here.
//
// This file includes nothing: g++, clang and nvcc compile it, NVRTC takes it as
// text, and the vector kernels compile it once per instruction set, in that
// set's own namespace, so that the linker cannot mix the copies.
//
// Conventions. T is float, double or an integer type; float16 and bfloat16 are
// computed in float by the caller. Integers wrap around. Comparisons and
// predicates return bool. NaN passes through, as in NumPy, also in Maximum,
// Minimum, Relu and Clip. Functions of float are branch-free, so that loops
// over them become vector code, and good to 3 units in the last place unless
// they say otherwise; those of double are the C library's. Subnormal results
// may be flushed to zero.
#ifndef SLUICE_ENGINE_SEMANTICS_SCALAR_H_
#define SLUICE_ENGINE_SEMANTICS_SCALAR_H_

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SLUICE_FN __host__ __device__ __forceinline__
#elif defined(SLUICE_ISA)
#define SLUICE_FN inline __attribute__((always_inline))
#else
#define SLUICE_FN inline
#endif

// The C library's function for float and for double, on this device.
#if defined(__CUDA_ARCH__)
#define SLUICE_LIBM(name, x) ::name(x)
#define SLUICE_LIBM2(name, x, y) ::name(x, y)
#else
#define SLUICE_LIBM(name, x) __builtin_##name(x)
#define SLUICE_LIBM2(name, x, y) __builtin_##name(x, y)
#endif

#ifdef SLUICE_ISA
namespace sluice::SLUICE_ISA {
namespace {
#else
namespace sluice {
#endif
namespace scalar {

// ---- Building blocks -------------------------------------------------------

SLUICE_FN unsigned BitsOf(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(unsigned, x);
#endif
}
SLUICE_FN unsigned long long BitsOf(double x) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned long long>(__double_as_longlong(x));
#else
  return __builtin_bit_cast(unsigned long long, x);
#endif
}
SLUICE_FN float FloatOf(unsigned bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

SLUICE_FN float Infinity() {
  return FloatOf(0x7f800000u);
}
SLUICE_FN float NotANumber() {
  return FloatOf(0x7fc00000u);
}

// The type in which arithmetic on T wraps around instead of overflowing.
template <typename T>
struct WrappingType {
  using Type = T;
};
template <>
struct WrappingType<int> {
  using Type = unsigned;
};
template <>
struct WrappingType<long> {
  using Type = unsigned long;
};
template <>
struct WrappingType<long long> {
  using Type = unsigned long long;
};
template <typename T>
using Wrapping = typename WrappingType<T>::Type;

template <typename T>
inline constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

// x < 0, which compilers warn of where T is unsigned.
template <typename T>
SLUICE_FN bool IsNegative(T x) {
  if constexpr (T(-1) < T(0)) {
    return x < T(0);
  } else {
    return false;
  }
}

template <typename T>
SLUICE_FN T ClampTo(T x, T low, T high) {
  return x < low ? low : (x > high ? high : x);
}

// 2^n for n in [-126, 127].
SLUICE_FN float PowerOfTwo(int n) {
  return FloatOf(static_cast<unsigned>(n + 127) << 23);
}

// Adding 1.5 * 2^23 leaves the nearest integer in a float's low bits.
inline constexpr float kRoundFloat = 12582912.0f;
inline constexpr double kRoundDouble = 6755399441055744.0;  // 1.5 * 2^52
inline constexpr float kLn2High = 0.693359375f;             // 9 bits
inline constexpr float kLn2Low = -2.12194440e-4f;

// x = n ln 2 + r with |r| <= ln(2) / 2; returns e^r - 1. The polynomials of
// this file are minimax fits, their relative errors below 2^-27.
struct ExpReduced {
  int n;
  float expm1;
};
SLUICE_FN ExpReduced ReduceExp(float x) {
  const float shifted = x * 1.44269504f + kRoundFloat;
  const float n = shifted - kRoundFloat;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9914546e-4f;
  p = p * r + 1.3941277e-3f;
  p = p * r + 8.333272e-3f;
  p = p * r + 4.166635e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  return {static_cast<int>(BitsOf(shifted) - BitsOf(kRoundFloat)),
          p * (r * r) + r};
}

// log(1 + f) + e ln 2 + c for 1 + f in [sqrt(1/2), sqrt(2)].
SLUICE_FN float LogReduced(float f, float e, float c) {
  float q = 6.7478e-2f;
  q = q * f - 1.16769545e-1f;
  q = q * f + 1.1888367e-1f;
  q = q * f - 1.24054015e-1f;
  q = q * f + 1.4219502e-1f;
  q = q * f - 1.6668004e-1f;
  q = q * f + 2.000212e-1f;
  q = q * f - 2.500001e-1f;
  q = q * f + 3.3333313e-1f;
  const float f2 = f * f;
  float y = q * f * f2 + (e * kLn2Low + c);
  y = y - 0.5f * f2;
  return (f + y) + e * kLn2High;
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], x normal and positive.
struct LogSplit {
  float f;
  float e;
};
SLUICE_FN LogSplit SplitForLog(float x) {
  const unsigned sqrt_half = 0x3f3504f3u;
  const unsigned bits = BitsOf(x) - sqrt_half;
  return {FloatOf((bits & 0x7fffffu) + sqrt_half) - 1.0f,
          static_cast<float>(static_cast<int>(bits) >> 23)};
}

// sin(x + quadrant pi / 2) for |x| <= kTrigLimit, computed in double.
inline constexpr float kTrigLimit = 1e6f;
struct SinCos {
  double sin;
  double cos;
  unsigned quadrant;
};
SLUICE_FN SinCos ReduceTrig(float x_float) {
  const double x = x_float;
  const double shifted = x * 0.6366197723675814 + kRoundDouble;
  const double n = shifted - kRoundDouble;
  const double r = (x - n * 1.5707963267341256) - n * 6.077100506506192e-11;
  const double z = r * r;
  const double s = ((2.718272497117655e-6 * z - 1.9839330791912647e-4) * z +
                    8.333329373492756e-3) *
                       z -
                   1.6666666641521535e-1;
  const double c = (2.4438071019949374e-5 * z - 1.3887364316584395e-3) * z +
                   4.166664680384912e-2;
  return {r + r * (z * s), (1.0 - 0.5 * z) + z * z * c,
          static_cast<unsigned>(BitsOf(shifted))};
}
SLUICE_FN float SinOfQuadrant(float x, unsigned quadrant) {
  const SinCos t = ReduceTrig(x);
  const unsigned q = t.quadrant + quadrant;
  const double value = (q & 1u) ? t.cos : t.sin;
  return static_cast<float>((q & 2u) ? -value : value);
}

// ---- Unary -----------------------------------------------------------------

struct Neg {
  static constexpr const char* kName = "Neg";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    if constexpr (kIsFloat<T>) {
      return -x;
    } else {
      return static_cast<T>(Wrapping<T>(0) - static_cast<Wrapping<T>>(x));
    }
  }
};

struct Abs {
  static constexpr const char* kName = "Abs";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(fabsf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(fabs, x); }
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return IsNegative(x) ? Neg()(x) : x;
  }
};

struct Sign {
  static constexpr const char* kName = "Sign";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    // A subnormal compares as 0 where these are flushed; NaN stays.
    return x > T(0) ? T(1) : (IsNegative(x) ? static_cast<T>(-1) : x * T(0));
  }
};

struct Exp {
  static constexpr const char* kName = "Exp";
  SLUICE_FN float operator()(float x) const {
    const ExpReduced t = ReduceExp(ClampTo(x, -104.0f, 89.0f));
    const int half = t.n >> 1;  // 2^n itself may be out of range
    return (t.expm1 + 1.0f) * PowerOfTwo(half) * PowerOfTwo(t.n - half);
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(exp, x); }
};

struct Expm1 {
  static constexpr const char* kName = "Expm1";
  SLUICE_FN float operator()(float x) const {
    // 2^n expm1(r) + (2^n - 1), halved to stay in range for n = 128.
    const ExpReduced t = ReduceExp(ClampTo(x, -18.0f, 89.0f));
    const float half = PowerOfTwo(t.n - 1);
    const float y = (t.expm1 * half + (half - 0.5f)) * 2.0f;
    return x == 0.0f ? x : y;  // keeps -0
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(expm1, x); }
};

struct Log {
  static constexpr const char* kName = "Log";
  SLUICE_FN float operator()(float x) const {
    const bool subnormal = x < 1.17549435e-38f;
    const LogSplit t = SplitForLog(subnormal ? x * 8388608.0f : x);
    const float y = LogReduced(t.f, subnormal ? t.e - 23.0f : t.e, 0.0f);
    const float infinity = Infinity();
    return x > 0.0f ? (x < infinity ? y : x)
                    : (x == 0.0f ? -infinity : NotANumber());
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(log, x); }
};

struct Log1p {
  static constexpr const char* kName = "Log1p";
  SLUICE_FN float operator()(float x) const {
    // log(u) + (what rounding took from u = 1 + x) / u.
    const float u = 1.0f + x;
    const LogSplit t = SplitForLog(u);
    const bool near = t.e == 0.0f;
    const float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    const float y = LogReduced(near ? x : t.f, t.e, near ? 0.0f : lost / u);
    const float infinity = Infinity();
    const float finite = x == 0.0f ? x : y;  // keeps -0
    return x > -1.0f ? (x < infinity ? finite : x)
                     : (x == -1.0f ? -infinity : NotANumber());
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(log1p, x); }
};

struct Sqrt {
  static constexpr const char* kName = "Sqrt";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(sqrtf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(sqrt, x); }
};

struct Rsqrt {
  static constexpr const char* kName = "Rsqrt";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return T(1) / Sqrt()(x);
  }
};

struct Square {
  static constexpr const char* kName = "Square";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const auto w = static_cast<Wrapping<T>>(x);
    return static_cast<T>(w * w);
  }
};

// 1 / x; for integers 0 unless x is 1 or -1.
struct Reciprocal {
  static constexpr const char* kName = "Reciprocal";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    if constexpr (!kIsFloat<T>) {
      return x == T(1) || Neg()(x) == T(1) ? x : T(0);
    } else {
      return T(1) / x;
    }
  }
};

// Near(): the branch-free form, for |x| <= kTrigLimit; vector loops test that
// once per block.
struct Sin {
  static constexpr const char* kName = "Sin";
  SLUICE_FN float Near(float x) const {
    return x == 0.0f ? x : SinOfQuadrant(x, 0);
  }
  SLUICE_FN float operator()(float x) const {
    return Abs()(x) <= kTrigLimit ? Near(x) : SLUICE_LIBM(sinf, x);
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(sin, x); }
};

struct Cos {
  static constexpr const char* kName = "Cos";
  SLUICE_FN float Near(float x) const { return SinOfQuadrant(x, 1); }
  SLUICE_FN float operator()(float x) const {
    return Abs()(x) <= kTrigLimit ? Near(x) : SLUICE_LIBM(cosf, x);
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(cos, x); }
};

struct Tan {
  static constexpr const char* kName = "Tan";
  SLUICE_FN float Near(float x) const {
    const SinCos t = ReduceTrig(x);
    const bool odd = t.quadrant & 1u;
    const double y = (odd ? -t.cos : t.sin) / (odd ? t.sin : t.cos);
    return x == 0.0f ? x : static_cast<float>(y);
  }
  SLUICE_FN float operator()(float x) const {
    return Abs()(x) <= kTrigLimit ? Near(x) : SLUICE_LIBM(tanf, x);
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(tan, x); }
};

// The next five are the C library's for float too.
struct Asin {
  static constexpr const char* kName = "Asin";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(asinf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(asin, x); }
};

struct Acos {
  static constexpr const char* kName = "Acos";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(acosf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(acos, x); }
};

struct Atan {
  static constexpr const char* kName = "Atan";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(atanf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(atan, x); }
};

struct Sinh {
  static constexpr const char* kName = "Sinh";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(sinhf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(sinh, x); }
};

struct Cosh {
  static constexpr const char* kName = "Cosh";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(coshf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(cosh, x); }
};

struct Tanh {
  static constexpr const char* kName = "Tanh";
  SLUICE_FN float operator()(float x) const {
    const float magnitude = Abs()(x);  // tanh(9.02) rounds to 1
    const float t = Expm1()(2.0f * (magnitude > 10.0f ? 10.0f : magnitude));
    return SLUICE_LIBM2(copysignf, t / (t + 2.0f), x);
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(tanh, x); }
};

struct Sigmoid {
  static constexpr const char* kName = "Sigmoid";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return T(1) / (T(1) + Exp()(-x));
  }
};

// log(1 + e^x).
struct Softplus {
  static constexpr const char* kName = "Softplus";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return Log1p()(Exp()(-Abs()(x))) + (x > T(0) ? x : T(0));
  }
};

// x / (1 + |x|); +-1 at the infinities.
struct Softsign {
  static constexpr const char* kName = "Softsign";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const T limited = ClampTo(x, T(-1e30), T(1e30));
    return limited / (T(1) + Abs()(limited));
  }
};

struct Relu {
  static constexpr const char* kName = "Relu";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return T{} > x ? T{} : x;
  }
};

struct Relu6 {
  static constexpr const char* kName = "Relu6";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return ClampTo(x, T(0), T(6));
  }
};

struct LeakyRelu {
  static constexpr const char* kName = "LeakyRelu";
  double alpha = 0.01;
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return x < T(0) ? T(alpha) * x : x;
  }
};

struct Elu {
  static constexpr const char* kName = "Elu";
  double alpha = 1;
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const T y = T(alpha) * Expm1()(x);
    return x < T(0) ? y : x;
  }
};

// Klambauer et al., 2017.
inline constexpr double kSeluAlpha = 1.6732632423543772;
inline constexpr double kSeluScale = 1.0507009873554805;
struct Selu {
  static constexpr const char* kName = "Selu";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return T(kSeluScale) * Elu{kSeluAlpha}(x);
  }
};

struct Erf {
  static constexpr const char* kName = "Erf";
  SLUICE_FN float operator()(float x) const {
    const float a = Abs()(x);
    // erf(x) = x + x P(x^2) below 1, 1 - exp(-Q(|x|)) above, 1 from 3.92 on.
    const float z = a > 1.0f ? 1.0f : x * x;
    float p = 7.853861e-5f;
    p = p * z - 8.0101937e-4f;
    p = p * z + 5.1883277e-3f;
    p = p * z - 2.6853813e-2f;
    p = p * z + 1.12835854e-1f;
    p = p * z - 3.7612626e-1f;
    p = p * z + 1.2837917e-1f;
    const float b = a > 4.0f ? 4.0f : a;
    float q = 2.144553e-5f;
    q = q * b - 4.3852953e-4f;
    q = q * b + 4.190854e-3f;
    q = q * b - 2.5171803e-2f;
    q = q * b + 1.0836154e-1f;
    q = q * b + 6.332724e-1f;
    q = q * b + 1.129552f;
    q = q * b - 1.8245951e-4f;
    const float large = SLUICE_LIBM2(copysignf, 1.0f - Exp()(-q), x);
    return a > 1.0f ? large : x + x * p;
  }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(erf, x); }
};

// The exact form x Phi(x), good to 3 units in the last place of max(1, |x|)
// (Hendrycks and Gimpel, 2016).
struct Gelu {
  static constexpr const char* kName = "Gelu";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const T y = T(0.5) * x * (T(1) + Erf()(x * T(0.7071067811865476)));
    return x < T(-800) ? T(0) : y;
  }
};

// Its approximation 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3),
// which is x sigmoid(2 u).
struct GeluTanh {
  static constexpr const char* kName = "GeluTanh";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const T twice_u = T(1.5957691216057308) * (x + T(0.044715) * (x * x * x));
    const T y = x / (T(1) + Exp()(-twice_u));
    return x < T(-800) ? T(0) : y;
  }
};

// x sigmoid(x).
struct Silu {
  static constexpr const char* kName = "Silu";
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    const T y = x / (T(1) + Exp()(-x));
    return x < T(-800) ? T(0) : y;
  }
};

struct Floor {
  static constexpr const char* kName = "Floor";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(floorf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(floor, x); }
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return x;
  }
};

struct Ceil {
  static constexpr const char* kName = "Ceil";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(ceilf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(ceil, x); }
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return x;
  }
};

// Halves go to the even neighbour.
struct Round {
  static constexpr const char* kName = "Round";
  SLUICE_FN float operator()(float x) const { return SLUICE_LIBM(rintf, x); }
  SLUICE_FN double operator()(double x) const { return SLUICE_LIBM(rint, x); }
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return x;
  }
};

// x limited to [low, high]; low if they cross.
struct Clip {
  static constexpr const char* kName = "Clip";
  double low = 0;
  double high = 0;
  template <typename T>
  SLUICE_FN T operator()(T x) const {
    return ClampTo(x, T(low), T(high));
  }
};

// ---- Unary predicates ------------------------------------------------------

struct IsNan {
  static constexpr const char* kName = "IsNan";
  template <typename T>
  SLUICE_FN bool operator()(T x) const {
    return x != x;
  }
};

struct IsInf {
  static constexpr const char* kName = "IsInf";
  template <typename T>
  SLUICE_FN bool operator()(T x) const {
    if constexpr (!kIsFloat<T>) return false;
    return Abs()(x) == T(Infinity());
  }
};

struct IsFinite {
  static constexpr const char* kName = "IsFinite";
  template <typename T>
  SLUICE_FN bool operator()(T x) const {
    if constexpr (!kIsFloat<T>) return true;
    return Abs()(x) < T(Infinity());
  }
};

struct LogicalNot {
  static constexpr const char* kName = "LogicalNot";
  template <typename T>
  SLUICE_FN bool operator()(T x) const {
    return x == T(0);
  }
};

// ---- Binary ----------------------------------------------------------------

struct Add {
  static constexpr const char* kName = "Add";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
  }
};

struct Sub {
  static constexpr const char* kName = "Sub";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
  }
};

struct Mul {
  static constexpr const char* kName = "Mul";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
  }
};

// Integers: towards zero, and a / 0 = 0 (a trap would kill the process).
struct Div {
  static constexpr const char* kName = "Div";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    if constexpr (!kIsFloat<T>) {
      if (b == T(0)) return T(0);
      // The least integer / -1 wraps too.
      if (T(-1) < T(0) && b == T(-1)) return Neg()(a);
    }
    return static_cast<T>(a / b);
  }
};

// The remainder with the divisor's sign, as in Python and NumPy. Integers:
// a mod 0 = 0.
struct Mod {
  static constexpr const char* kName = "Mod";
  SLUICE_FN static float Remainder(float a, float b) {
    return SLUICE_LIBM2(fmodf, a, b);
  }
  SLUICE_FN static double Remainder(double a, double b) {
    return SLUICE_LIBM2(fmod, a, b);
  }
  template <typename T>
  SLUICE_FN static T Remainder(T a, T b) {
    const bool trivial = b == T(0) || (T(-1) < T(0) && b == T(-1));
    return trivial ? T(0) : static_cast<T>(a % b);
  }
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    const T r = Remainder(a, b);
    return r != T(0) && (IsNegative(r) != IsNegative(b)) ? static_cast<T>(r + b)
                                                         : r;
  }
};

// floor(a / b); but for integers and b = 0 (a / 0 = 0, a mod 0 = 0) consistent
// with Mod: a = FloorDiv(a, b) b + Mod(a, b).
struct FloorDiv {
  static constexpr const char* kName = "FloorDiv";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      if (b == T(0)) return a / b;
      const T r = Mod::Remainder(a, b);
      const bool down = r != T(0) && (IsNegative(r) != IsNegative(b));
      const T q = Round()((a - r) / b);  // an integer up to rounding
      return down ? q - T(1) : q;
    } else {
      const T q = Div()(a, b);
      const T r = Mod::Remainder(a, b);
      const bool down = r != T(0) && (IsNegative(r) != IsNegative(b));
      return static_cast<T>(down ? q - T(1) : q);
    }
  }
};

// Integers: by squaring, wrapping; a negative exponent gives 0 unless a is 1
// or -1.
struct Pow {
  static constexpr const char* kName = "Pow";
  SLUICE_FN float operator()(float a, float b) const {
    return SLUICE_LIBM2(powf, a, b);
  }
  SLUICE_FN double operator()(double a, double b) const {
    return SLUICE_LIBM2(pow, a, b);
  }
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    if (IsNegative(b)) {
      a = Reciprocal()(a);
      b = b % T(2) != T(0) ? T(1) : T(2);  // a is now 0, 1 or -1
    }
    T result = T(1);
    for (; b != T(0); b = static_cast<T>(b / T(2))) {
      if (b % T(2) != T(0)) result = Mul()(result, a);
      a = Mul()(a, a);
    }
    return result;
  }
};

struct Maximum {
  static constexpr const char* kName = "Maximum";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    const T larger = a > b ? a : b;  // b when either is NaN
    return a != a ? a : larger;
  }
};

struct Minimum {
  static constexpr const char* kName = "Minimum";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};

struct SquaredDifference {
  static constexpr const char* kName = "SquaredDifference";
  template <typename T>
  SLUICE_FN T operator()(T a, T b) const {
    return Square()(Sub()(a, b));
  }
};

struct Atan2 {
  static constexpr const char* kName = "Atan2";
  SLUICE_FN float operator()(float a, float b) const {
    return SLUICE_LIBM2(atan2f, a, b);
  }
  SLUICE_FN double operator()(double a, double b) const {
    return SLUICE_LIBM2(atan2, a, b);
  }
};

// ---- Binary predicates -----------------------------------------------------

struct Equal {
  static constexpr const char* kName = "Equal";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a == b;
  }
};

struct NotEqual {
  static constexpr const char* kName = "NotEqual";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a != b;
  }
};

struct Less {
  static constexpr const char* kName = "Less";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a < b;
  }
};

struct LessEqual {
  static constexpr const char* kName = "LessEqual";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a <= b;
  }
};

struct Greater {
  static constexpr const char* kName = "Greater";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a > b;
  }
};

struct GreaterEqual {
  static constexpr const char* kName = "GreaterEqual";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return a >= b;
  }
};

// The logical ops take any non-zero value as true.
struct LogicalAnd {
  static constexpr const char* kName = "LogicalAnd";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return (a != T(0)) & (b != T(0));
  }
};

struct LogicalOr {
  static constexpr const char* kName = "LogicalOr";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return (a != T(0)) | (b != T(0));
  }
};

struct LogicalXor {
  static constexpr const char* kName = "LogicalXor";
  template <typename T>
  SLUICE_FN bool operator()(T a, T b) const {
    return (a != T(0)) != (b != T(0));
  }
};

// ---- Ternary ---------------------------------------------------------------

struct Select {
  static constexpr const char* kName = "Select";
  template <typename T>
  SLUICE_FN T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

// ---- Gradients of activations ----------------------------------------------
// dy is the gradient of the result y; the second operand is y, or x where the
// parameter says so.

struct ReluGrad {
  static constexpr const char* kName = "ReluGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T y) const {
    return y > T{} ? dy : T{};
  }
};

struct Relu6Grad {
  static constexpr const char* kName = "Relu6Grad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T y) const {
    const bool inside = (y > T(0)) & (y < T(6));
    return inside ? dy : T(0);
  }
};

struct LeakyReluGrad {
  static constexpr const char* kName = "LeakyReluGrad";
  double alpha = 0.01;  // must be positive: y stands in for x
  template <typename T>
  SLUICE_FN T operator()(T dy, T y) const {
    return y > T(0) ? dy : T(alpha) * dy;
  }
};

struct EluGrad {
  static constexpr const char* kName = "EluGrad";
  double alpha = 1;
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    const T slope = T(alpha) * Exp()(x);
    return x > T(0) ? dy : dy * slope;
  }
};

struct SeluGrad {
  static constexpr const char* kName = "SeluGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    const T slope = T(kSeluScale * kSeluAlpha) * Exp()(x);
    return dy * (x > T(0) ? T(kSeluScale) : slope);
  }
};

struct SigmoidGrad {
  static constexpr const char* kName = "SigmoidGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T y) const {
    return dy * (y * (T(1) - y));
  }
};

struct TanhGrad {
  static constexpr const char* kName = "TanhGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T y) const {
    return dy * (T(1) - y * y);
  }
};

struct SoftplusGrad {
  static constexpr const char* kName = "SoftplusGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    return dy * Sigmoid()(x);
  }
};

struct SiluGrad {
  static constexpr const char* kName = "SiluGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    const T s = Sigmoid()(x);
    return dy * (s * (T(1) + ClampTo(x, T(-800), T(800)) * (T(1) - s)));
  }
};

struct GeluGrad {
  static constexpr const char* kName = "GeluGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    const T cdf = T(0.5) * (T(1) + Erf()(x * T(0.7071067811865476)));
    const T t = ClampTo(x, T(-40), T(40));  // the density is 0 beyond
    return dy * (cdf + t * T(0.3989422804014327) * Exp()(T(-0.5) * t * t));
  }
};

struct GeluTanhGrad {
  static constexpr const char* kName = "GeluTanhGrad";
  template <typename T>
  SLUICE_FN T operator()(T dy, T x) const {
    const T c = T(1.5957691216057308);
    const T t = ClampTo(x, T(-40), T(40));
    const T s = Sigmoid()(c * (x + T(0.044715) * (x * x * x)));
    const T slope = c * (T(1) + T(0.134145) * (t * t));
    return dy * (s + t * slope * (s * (T(1) - s)));
  }
};

// ---- Lists -----------------------------------------------------------------

template <typename... Ops>
struct OpList {};

using UnaryOps =
    OpList<Neg, Abs, Sign, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Square,
           Reciprocal, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh,
           Sigmoid, Softplus, Softsign, Relu, Relu6, LeakyRelu, Elu, Selu, Gelu,
           GeluTanh, Silu, Erf, Floor, Ceil, Round, Clip>;
using UnaryPredicates = OpList<IsNan, IsInf, IsFinite, LogicalNot>;
using BinaryOps =
    OpList<Add, Sub, Mul, Div, FloorDiv, Mod, Pow, Maximum, Minimum,
           SquaredDifference, Atan2, ReluGrad, Relu6Grad, LeakyReluGrad,
           EluGrad, SeluGrad, SigmoidGrad, TanhGrad, SoftplusGrad, SiluGrad,
           GeluGrad, GeluTanhGrad>;
using BinaryPredicates =
    OpList<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, LogicalAnd,
           LogicalOr, LogicalXor>;

// An op with its parameters, in the order of its fields; those it has not are
// ignored.
template <typename Op>
SLUICE_FN Op MakeOp(double a, double b) {
  if constexpr (requires { Op{0.0, 0.0}; }) {
    return Op{a, b};
  } else if constexpr (requires { Op{0.0}; }) {
    return Op{a};
  } else {
    return Op{};
  }
}

}  // namespace scalar
#ifdef SLUICE_ISA
}  // namespace
}  // namespace sluice::SLUICE_ISA
#else
}  // namespace sluice
#endif

#undef SLUICE_FN
#undef SLUICE_LIBM
#undef SLUICE_LIBM2

#endif  // SLUICE_ENGINE_SEMANTICS_SCALAR_H_
