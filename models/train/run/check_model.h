// What a model function returned, before anything is made of it.
#ifndef SLUICE_MODELS_TRAIN_RUN_CHECK_MODEL_H_
#define SLUICE_MODELS_TRAIN_RUN_CHECK_MODEL_H_

#include <cstdint>
#include <string>

#include "engine/shape.h"
#include "models/run_context.h"
#include "models/train/run/model_spec.h"

namespace sluice {

// Throws Error, naming what is wrong of the model that `program` made for
// `mode`: a missing loss, but for Mode::kPredict, an empty handle, an export
// that is a scalar, a metric without a state.
void CheckModel(const std::string& program, const ModelSpec& model, Mode mode);

// Throws Error unless the value of an export, computed of a batch of `rows`
// examples, has a row for each.
void CheckExportRows(const std::string& name, const Shape& shape, int64_t rows);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_CHECK_MODEL_H_
