// The values of a graph's variables, as they go into files and between
// sessions.
#ifndef SLUICE_MODELS_VARIABLE_VALUES_H_
#define SLUICE_MODELS_VARIABLE_VALUES_H_

#include <string>
#include <vector>

#include "graph/session.h"
#include "io/safetensors.h"

namespace sluice {

// Copies, by name.
std::vector<NamedTensor> ReadVariables(const Session& session,
                                       const std::vector<Output>& variables);

enum class Extra { kRefused, kIgnored };

// Gives `variables` the values of the tensors of their names. Where one is
// missing, has another dtype or shape, or is left over and `extra` refuses
// that, nothing is written and the error (kInvalidArgument) names them all;
// `source` says where the tensors came from.
Status WriteVariables(Session& session, const std::vector<Output>& variables,
                      const std::vector<NamedTensor>& tensors, Extra extra,
                      const std::string& source);

}  // namespace sluice

#endif  // SLUICE_MODELS_VARIABLE_VALUES_H_
