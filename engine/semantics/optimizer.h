// What a step of each optimizer does to one parameter: a functor per rule, as
// engine/semantics/scalar.h has them for elementwise ops. The GPU's kernels and
// the CPU's loops of any dtype come from here. The vector loops of float32
// (kernels/cpu/simd/optimizer.cc) group the same products and quotients in
// another way, so that their last bits differ.
#ifndef SLUICE_ENGINE_SEMANTICS_OPTIMIZER_H_
#define SLUICE_ENGINE_SEMANTICS_OPTIMIZER_H_

#include <cstdint>

#include "engine/semantics/scalar.h"

// Compiled for the CPU, and by nvcc for the GPU too.
#ifdef __CUDACC__
#define SLUICE_OPTIMIZER_FN __host__ __device__ __forceinline__
#else
#define SLUICE_OPTIMIZER_FN inline
#endif

namespace sluice {

// The hyperparameters that an op has as attributes, the others 0.
struct OptimizerParams {
  double momentum = 0, decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  double weight_decay = 0;
  bool nesterov = false;
  // Added to the gradients of the first `decayed` variables, times the
  // variable.
  double gradient_decay = 0;
  int64_t decayed = 0;
};

namespace optimizer {

// One step's numbers, as they are for all parameters.
template <typename T>
struct Update {
  T learning_rate, momentum, decay, beta1, beta2, epsilon, weight_decay;
  bool nesterov;
  T correction1, correction2;  // Adam's 1 - beta^step; 1 where none counts them
  // For Adam, computed outside the loops: the learning rate over correction1,
  // the root of correction2, and the factor that weight decay leaves of a
  // parameter.
  T corrected_rate, correction_root, kept;
};

// 1 - beta^step.
template <typename T>
SLUICE_OPTIMIZER_FN T Correction(double beta, int64_t step) {
  return static_cast<T>(1 - scalar::Pow()(beta, static_cast<double>(step)));
}

template <typename T>
SLUICE_OPTIMIZER_FN Update<T> UpdateOf(const OptimizerParams& params,
                                       T learning_rate, T correction1,
                                       T correction2) {
  Update<T> u;
  u.learning_rate = learning_rate;
  u.momentum = static_cast<T>(params.momentum);
  u.decay = static_cast<T>(params.decay);
  u.beta1 = static_cast<T>(params.beta1);
  u.beta2 = static_cast<T>(params.beta2);
  u.epsilon = static_cast<T>(params.epsilon);
  u.weight_decay = static_cast<T>(params.weight_decay);
  u.nesterov = params.nesterov;
  u.correction1 = correction1;
  u.correction2 = correction2;
  u.corrected_rate = learning_rate / correction1;
  u.correction_root = scalar::Sqrt()(correction2);
  u.kept = 1 - learning_rate * u.weight_decay;
  return u;
}

// Each rule changes parameter p, of gradient g, and its slots, which come in
// the order of the op's inputs; those it has not are not read. kName is the op
// for one variable; that for a list has "List" behind it, that for some rows of
// one kRowsSuffix. kCountsSteps: the step's number follows the learning rate.
inline constexpr const char* kRowsSuffix = "Rows";

struct Sgd {
  static constexpr const char* kName = "ApplySgd";
  static constexpr int kSlots = 0;
  static constexpr bool kCountsSteps = false;
  template <typename T>
  SLUICE_OPTIMIZER_FN void operator()(const Update<T>& u, T g, T& p, T&,
                                      T&) const {
    p -= u.learning_rate * g;
  }
};

struct Momentum {
  static constexpr const char* kName = "ApplyMomentum";
  static constexpr int kSlots = 1;
  static constexpr bool kCountsSteps = false;
  template <typename T>
  SLUICE_OPTIMIZER_FN void operator()(const Update<T>& u, T g, T& p,
                                      T& velocity, T&) const {
    velocity = u.momentum * velocity + g;
    p -= u.learning_rate * (u.nesterov ? g + u.momentum * velocity : velocity);
  }
};

template <bool kMomentum>
struct RmsPropOf {
  static constexpr const char* kName =
      kMomentum ? "ApplyRmsPropMomentum" : "ApplyRmsProp";
  static constexpr int kSlots = kMomentum ? 2 : 1;
  static constexpr bool kCountsSteps = false;
  template <typename T>
  SLUICE_OPTIMIZER_FN void operator()(const Update<T>& u, T g, T& p,
                                      T& mean_square, T& velocity) const {
    mean_square = u.decay * mean_square + (1 - u.decay) * g * g;
    T direction = g / (scalar::Sqrt()(mean_square) + u.epsilon);
    if (kMomentum) velocity = direction = u.momentum * velocity + direction;
    p -= u.learning_rate * direction;
  }
};
using RmsProp = RmsPropOf<false>;
using RmsPropMomentum = RmsPropOf<true>;

struct Adagrad {
  static constexpr const char* kName = "ApplyAdagrad";
  static constexpr int kSlots = 1;
  static constexpr bool kCountsSteps = false;
  template <typename T>
  SLUICE_OPTIMIZER_FN void operator()(const Update<T>& u, T g, T& p,
                                      T& accumulator, T&) const {
    accumulator += g * g;
    p -= u.learning_rate * g / (scalar::Sqrt()(accumulator) + u.epsilon);
  }
};

// weight_decay is 0 here, an attribute of ApplyAdamW alone.
struct Adam {
  static constexpr const char* kName = "ApplyAdam";
  static constexpr int kSlots = 2;
  static constexpr bool kCountsSteps = true;
  template <typename T>
  SLUICE_OPTIMIZER_FN void operator()(const Update<T>& u, T g, T& p, T& m,
                                      T& v) const {
    m = u.beta1 * m + (1 - u.beta1) * g;
    v = u.beta2 * v + (1 - u.beta2) * g * g;
    p = u.kept * p - u.corrected_rate * m /
                         (scalar::Sqrt()(v) / u.correction_root + u.epsilon);
  }
};
struct AdamW : Adam {
  static constexpr const char* kName = "ApplyAdamW";
};

using Rules = scalar::OpList<Sgd, Momentum, RmsProp, RmsPropMomentum, Adagrad,
                             Adam, AdamW>;

}  // namespace optimizer
}  // namespace sluice

#undef SLUICE_OPTIMIZER_FN

#endif  // SLUICE_ENGINE_SEMANTICS_OPTIMIZER_H_
