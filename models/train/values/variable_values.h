// The values of a graph's variables, as they go into files and between
// sessions.
#ifndef SLUICE_MODELS_TRAIN_VALUES_VARIABLE_VALUES_H_
#define SLUICE_MODELS_TRAIN_VALUES_VARIABLE_VALUES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"

namespace SLUICE_PUBLIC sluice {

// Copies the variables' values, by name. The overload with `values` reuses the
// tensors in it if they are still those of the same variables.
void ReadVariables(const Session& session, const std::vector<Output>& variables,
                   std::vector<NamedTensor>* values);
std::vector<NamedTensor> ReadVariables(const Session& session,
                                       const std::vector<Output>& variables);

enum class Extra { kRefused, kIgnored };

// Gives `variables` the values of the tensors of their names. Where one is
// missing, has another dtype or shape, or is left over and `extra` refuses
// that, nothing is written and the error (kInvalidArgument) names them all
// (of more than 64 of a kind, which are another model's, the first four);
// `source` says where the tensors came from.
Status WriteVariables(Session& session, const std::vector<Output>& variables,
                      const std::vector<NamedTensor>& tensors, Extra extra,
                      const std::string& source);

// Gives a variable, which must have a value and the tensor's type, the value of
// the tensor, some rows at a time.
Status WriteByRows(Session& session, const Output& variable,
                   const RowsTensor& tensor);

// How tensors in a file stand for variables. Null: by the variable's name and
// with its dimensions.
struct WeightLayout {
  std::function<std::string(const Output& variable)> name = nullptr;
  // Dimension i of the variable is dimension order[i] of the tensor; empty: all
  // are the same.
  std::function<std::vector<int>(const Output& variable)> order = nullptr;
};

// WriteVariables for a file of weights, none of which may be left over.
// Variables of float32 and float64 take tensors of any floating dtype, rounded
// to nearest even; a finite number that would become infinite is an error, too.
// If little is wrong and shapes are among it, the error says how to do without
// (WeightsOptions::reset). Returns how many tensors were converted.
Result<int64_t> WriteWeights(Session& session,
                             const std::vector<Output>& variables,
                             const std::vector<NamedTensor>& tensors,
                             const std::string& source,
                             const WeightLayout& layout);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_VARIABLE_VALUES_H_
