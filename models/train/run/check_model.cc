#include "models/train/run/check_model.h"

#include <fmt/format.h>

#include "engine/catch_errors.h"

namespace sluice {
namespace {

void CheckHandles(const std::string& program, const char* kind,
                  const NamedOutputs& named) {
  for (const auto& [name, output] : named) {
    if (output.valid()) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: {} '{}' is an empty Output: a handle that no "
                            "op returned",
                            program, kind, name));
  }
}

}  // namespace

void CheckModel(const std::string& program, const ModelSpec& model, Mode mode) {
  if (!model.loss.valid() && mode != Mode::kPredict) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: the model function returned no loss{}", program,
                    mode == Mode::kEval ? " for an evaluation" : ""));
  }
  CheckHandles(program, "export", model.exports);
  CheckHandles(program, "summary", model.summaries);
  for (const auto& [name, output] : model.exports) {
    if (output.shape().rank() > 0) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: export '{}' is a scalar, wanted one row per "
                            "example; what is one figure of a batch may be a "
                            "metric ({})",
                            program, name, output.node().location()));
  }
  // Else a metric without a state would be found by the first evaluation.
  ThrowIfError(CatchErrors([&] {
                 (void)MetricsOverSet(model.metrics);
               }).WithContext(program));
}

void CheckExportRows(const std::string& name, const Shape& shape,
                     int64_t rows) {
  if (shape.rank() > 0 && shape[0] == rows) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("export '{}' is {} for a batch of {} examples, "
                          "wanted one row per example",
                          name, shape.ToString(), rows));
}

}  // namespace sluice
