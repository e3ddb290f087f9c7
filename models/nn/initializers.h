// First values of weights, as rules that give an Initializer for a shape:
//
//   Output w = graph.Variable("w", initializers::HeNormal()({784, 128}));
//   layers::Dense(scope / "fc1", x,
//                 {.units = 128, .weights = initializers::HeNormal()});
//
// The rules that scale do so by the fans of the shape: of [in, out], of HWIO
// filters [height, width, in, out] (fan = channels times window), and of other
// shapes by their last two dimensions in the same way.
#ifndef SLUICE_MODELS_NN_INITIALIZERS_H_
#define SLUICE_MODELS_NN_INITIALIZERS_H_

#include <functional>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {
namespace initializers {

struct Rule {
  std::function<Initializer(const Shape& shape, DType dtype)> make;
  // The shape must be concrete; the random rules want a floating dtype.
  Initializer operator()(const Shape& shape,
                         DType dtype = DType::kFloat32) const {
    return make(shape, dtype);
  }
};

// Every element `value`.
Rule Constant(double value);

Rule Uniform(double lo, double hi);
Rule Normal(double stddev, double mean = 0);
// A normal cut off at two `stddev`s, whose own deviation is 0.88 of it.
Rule TruncatedNormal(double stddev, double mean = 0);

// Uniform on +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
Rule GlorotUniform();
// A normal with deviation sqrt(2 / (fan_in + fan_out)). This and the next two
// are cut off at two deviations, and widened so that the deviation is exact.
Rule GlorotNormal();
// A normal with deviation sqrt(2 / fan_in), for rectifiers (He et al., 2015).
Rule HeNormal();
// A normal with deviation sqrt(1 / fan_in) (LeCun et al., 1998).
Rule LecunNormal();
// Uniform on +-sqrt(6 / fan_in).
Rule HeUniform();

}  // namespace initializers
}  // namespace sluice

#endif  // SLUICE_MODELS_NN_INITIALIZERS_H_
