// What a reduction does with its elements. A monoid combines partial results:
// Start() is that of no elements, Merge takes another in. A reducer makes a
// partial result of an element and an element of the final one.
#ifndef SLUICE_KERNELS_CPU_REDUCE_REDUCERS_H_
#define SLUICE_KERNELS_CPU_REDUCE_REDUCERS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/dtype.h"
#include "engine/semantics/scalar.h"
#include "kernels/cpu/reduce/reduce.h"

namespace sluice::cpu {

// --- Monoids -----------------------------------------------------------------

template <typename S>
struct Sums {
  using State = S;
  static S Start() { return 0; }
  static void Merge(S& s, S other) { s += other; }
};

template <typename S>
struct Products {
  using State = S;
  static S Start() { return 1; }
  static void Merge(S& s, S other) { s *= other; }
};

// Choose is scalar::Maximum or Minimum.
template <typename S, typename Choose>
struct Extremes {
  using State = S;
  static S Start() {
    using Limits = std::numeric_limits<S>;
    constexpr bool kMax = std::is_same_v<Choose, scalar::Maximum>;
    if constexpr (Limits::has_infinity) {
      return kMax ? -Limits::infinity() : Limits::infinity();
    } else {
      return kMax ? Limits::lowest() : Limits::max();
    }
  }
  static void Merge(S& s, S other) { s = Choose()(s, other); }
};

// exp(max) * sum, max being the largest so far.
struct ScaledSum {
  double max;
  double sum;
};
struct ScaledSums {
  using State = ScaledSum;
  static State Start() { return {-std::numeric_limits<double>::infinity(), 0}; }
  // Equal maxima apart, or infinities would make NaN.
  static void Merge(State& s, State other) {
    if (other.max > s.max) std::swap(s, other);
    s.sum += other.max == s.max ? other.sum
                                : other.sum * std::exp(other.max - s.max);
  }
};

template <bool kAll>
struct Truths {
  using State = bool;
  static bool Start() { return kAll; }
  static void Merge(bool& s, bool other) { s = kAll ? s && other : s || other; }
};

// --- Reducers ----------------------------------------------------------------
// `count` is the number of elements that went into a result.

// Elements of type T as states of type Monoid::State, and back.
template <typename T, typename M>
struct Converting {
  using Element = T;
  using Monoid = M;
  using State = typename M::State;
  static State From(T x) {
    return static_cast<State>(static_cast<ComputeType<T>>(x));
  }
  static T Finish(State s, int64_t /*count*/) {
    return T(static_cast<ComputeType<T>>(s));
  }
};

template <typename T>
using SumReducer = Converting<T, Sums<Wide<T>>>;
template <typename T>
using ProdReducer = Converting<T, Products<Wide<T>>>;
template <typename T>
using MaxReducer = Converting<T, Extremes<ComputeType<T>, scalar::Maximum>>;
template <typename T>
using MinReducer = Converting<T, Extremes<ComputeType<T>, scalar::Minimum>>;
using AnyReducer = Converting<bool, Truths<false>>;
using AllReducer = Converting<bool, Truths<true>>;

template <typename T>
struct MeanReducer : SumReducer<T> {
  static T Finish(double sum, int64_t count) {
    return T(static_cast<ComputeType<T>>(sum / static_cast<double>(count)));
  }
};

template <typename T>
struct LogSumExpReducer {
  using Element = T;
  using Monoid = ScaledSums;
  using State = ScaledSum;
  static State From(T x) {
    return {static_cast<double>(static_cast<ComputeType<T>>(x)), 1};
  }
  static T Finish(State s, int64_t /*count*/) {
    return T(static_cast<ComputeType<T>>(s.max + std::log(s.sum)));
  }
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_REDUCE_REDUCERS_H_
