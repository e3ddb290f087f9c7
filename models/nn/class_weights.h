// Class weights, for losses on data sets in which some classes are rare.
#ifndef SLUICE_MODELS_NN_CLASS_WEIGHTS_H_
#define SLUICE_MODELS_NN_CLASS_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Class weights that make all classes that occur count the same, from counts[i]
// examples of class i: examples / (classes that occur * counts[i]),
// scikit-learn's "balanced". A class without examples has weight 1. Throws
// Error(kInvalidArgument) for a negative count.
std::vector<double> BalancedWeights(std::span<const int64_t> counts);

// One weight for each class:
//
//   weights := entry { "," entry }
//   entry   := class "=" weight
//
// A class is one of `class_names`, or else its number, from 0; a name may hold
// "=", but of a class with "," in its name only the number can be written.
// Classes that are not mentioned weigh 1. So "2=5,cat=0.5".
//
// `class_names` has names of the first classes, or of all. Throws
// Error(kInvalidArgument) that names the entry: for a class there is not, one
// given twice, a name that several classes have, and for what is no weight
// (CheckClassWeights).
std::vector<double> ParseClassWeights(
    std::string_view text, int64_t classes,
    const std::vector<std::string>& class_names);

// Throws Error(kInvalidArgument) unless each weight is a number that is not
// negative and not beyond float32, and one of them is a normal float32.
void CheckClassWeights(std::span<const double> weights);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_CLASS_WEIGHTS_H_
