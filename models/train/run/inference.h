// A model with training switched off, in a graph and a session of its own:
// evaluates, predicts and is what gets exported. Its variables are copies, set
// by name.
#ifndef SLUICE_MODELS_TRAIN_RUN_INFERENCE_H_
#define SLUICE_MODELS_TRAIN_RUN_INFERENCE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"
#include "models/train/run/batch_step.h"
#include "models/train/run/model_spec.h"
#include "models/train/values/variable_values.h"
#include "models/train/workers/reporter.h"
#include "models/train/workers/workers.h"

// Declared with the visibility of its definition: g++ uses that of the first
// declaration.
namespace sluice {

class DeviceThreads;

}  // namespace sluice

namespace SLUICE_INTERNAL sluice {

class ScatteredVariables;

}  // namespace sluice

namespace SLUICE_PUBLIC sluice {

// The results of a model on a set.
struct Evaluation {
  int64_t step = 0;  // of the training that the variables come from
  std::string set;   // TrainerSpec::evaluated_on
  // The file that the variables were read from; "": the training itself.
  std::string checkpoint = {};
  // Whether the training does this evaluation however it is interrupted and
  // resumed; false at a mere pause (StopAtStep). Hooks that decide by
  // evaluations count only due ones.
  bool due = true;
  int64_t examples = 0;
  double seconds = 0;
  // "loss" first, then the model's metrics, over all examples.
  std::vector<std::pair<std::string, double>> values;
  // The value of that name, or null.
  const double* Find(std::string_view name) const;
};

// Gets each batch with the model's exports for it; returns whether to go on.
using OnBatch =
    std::function<bool(const Example& batch, const Example& exports)>;

// What an evaluation asks and tells on its way. None is owned; each may be
// null.
struct EvaluationWatch {
  const StopToken* stop = nullptr;
  Reporter* reporter = nullptr;
  OnBatch each = nullptr;  // has the exports computed, too
};

// How many examples the largest batch of an input has.
int64_t FullBatch(const Dataset& input);
// How many examples a batch holds, and how many the whole batch holds that it
// may be a share of.
int64_t RowsOf(const Example& batch);
int64_t WholeRowsOf(const Example& batch);
// Reads the next batch of each iterator; all have equally many. Returns false
// at their end.
bool NextOfEach(std::vector<Iterator>& batches, std::vector<Example>* next);

// One thread at a time.
class Inference {
 public:
  // Calls spec.input and spec.model with `run`, whose mode must not be kTrain.
  // Throws Error.
  Inference(const TrainerSpec& spec, RunContext run,
            const SessionOptions& options);
  // With several `workers` (of options.collective) each evaluates its leaves'
  // shares of every batch. `devices` is not owned; if there are several they
  // compute the leaves, and only evaluations may be asked for. `place`, unless
  // null, may let variables stay where a training has them; their rows are then
  // read there (graph/row_pieces.h). For messages, a batch is as large as those
  // of `steps` steps (TrainingRun::steps_at_once).
  using PlaceFn = std::function<void(Graph& graph, SessionOptions& session)>;
  Inference(const TrainerSpec& spec, RunContext run,
            const SessionOptions& options, const Workers& workers,
            DeviceThreads* devices, const PlaceFn& place = nullptr,
            int64_t steps = 1);
  ~Inference();

  // Sets the values of the model's variables; other tensors (optimizer slots)
  // are ignored. Throws Error naming what does not fit; `source` says where the
  // values are from. Of several workers this and LoadWeights are for rank 0,
  // with whole values, before a HandOut.
  void SetVariables(const std::vector<NamedTensor>& values,
                    const std::string& source);
  // Sets the variables from a file (models/train/values/weights_file.h).
  void LoadWeights(const std::string& path);
  // Gives all workers the variables that rank 0 has set, or their parts of
  // them. Waits.
  void HandOut();
  // Fixes the variables as they are, so that the model may be made faster
  // (Session::Freeze). Setting them is an error afterwards.
  void Freeze() { session_->Freeze(); }
  // Copies the variables from the graph that trains the same model, whose
  // variables `read` reads; or their averages, if there are any and `trained`,
  // which says whether a step was done.
  void CopyVariables(const Graph& graph, bool trained,
                     const std::function<Tensor(const Output&)>& read);

  // Evaluates the whole set, whatever the size of the last batch. Returns
  // nullopt if `watch` cut it short. Waits for the other workers, which get the
  // same figures; `watch.each` is for one worker alone, and so is Predict.
  // Throws Error for a model without a loss, which one that predicts may be.
  std::optional<Evaluation> Evaluate(const EvaluationWatch& watch = {});

  // Calls fn for each batch, until it returns false or `stop`, unless null,
  // says so. Throws Error if an export has not one row per example.
  void Predict(const OnBatch& fn, const StopToken* stop = nullptr);

  // The exports for one batch, in the model's order; the next call overwrites
  // them.
  std::span<const Tensor> Predict(const Example& batch) {
    return predict_->Run(batch);
  }
  // The two Prepare functions plan for full batches (BatchStep::Prepare).
  StepInfo PreparePrediction();
  // BatchStep::info of the last Predict or PreparePrediction.
  StepInfo prediction_info() const { return predict_->info(); }
  StepInfo PrepareEvaluation();
  // Gives all variables their first values.
  void Initialize() { session_->Initialize(); }

  const Graph& graph() const { return graph_; }
  const Dataset& input() const { return input_; }
  const Session& session() const { return *session_; }
  const ModelSpec& model() const { return model_; }
  const Features& features() const { return *features_; }
  // The training's class names, if they are known.
  const std::vector<std::string>& class_names() const {
    return run_.class_names;
  }

 private:
  // Calls fn for each device, on its thread where there are several.
  void OnDevices(const std::function<void(size_t device)>& fn);
  // Evaluates one share of a batch and adds it to `figures`. Returns whether
  // `each`, unless null, wants to go on.
  bool EvaluateShare(BatchStep& step, const Example& share, const OnBatch& each,
                     MetricsOverSet& figures);
  // Names `values`, those of the model's exports for a batch of `rows`
  // examples. Throws Error (CheckExportRows).
  Example ExportsOf(std::span<const Tensor> values, int64_t rows) const;

  RunContext run_;
  Workers workers_;
  DeviceThreads* devices_;  // null: one, and the caller's thread
  const int64_t steps_;
  std::string set_;
  Dataset input_;
  std::vector<Dataset> shares_;
  Graph graph_;
  std::unique_ptr<Features> features_;
  ModelSpec model_;
  bool meets_ = false;    // whether its steps meet those of other workers
  NamedMetrics figures_;  // "loss", if any, then the model's metrics
  std::unique_ptr<Session> session_;
  std::unique_ptr<ScatteredVariables> scattered_;
  std::vector<std::unique_ptr<Session>> others_;  // of further devices
  // By device: fetches what the figures need.
  std::vector<std::unique_ptr<BatchStep>> evaluate_;
  std::unique_ptr<BatchStep> watched_;  // the same and the exports, once asked
  std::unique_ptr<BatchStep> predict_;  // fetches the exports
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_INFERENCE_H_
