// Files of weights for variables that stand for those of a model, in a graph of
// their own. Internal to models/train.
#ifndef SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_OF_MODEL_H_
#define SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_OF_MODEL_H_

#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "models/train/values/weights_file.h"

namespace SLUICE_INTERNAL sluice {

// LoadWeightsWith. `model` are the same variables, one by one, in the graph of
// the model, which alone says what reads them: whether images are flattened
// before a matrix. There they may be parts, narrower in the last dimension.
Result<LoadedWeights> LoadWeightsLike(Session& session,
                                      const std::vector<Output>& variables,
                                      const std::vector<Output>& model,
                                      const std::string& path,
                                      const WeightsOptions& options);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_OF_MODEL_H_
