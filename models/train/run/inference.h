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

// As where it is defined: g++ goes by the first declaration that it meets.
namespace sluice {

class DeviceThreads;

}  // namespace sluice

namespace SLUICE_PUBLIC sluice {

// What a model achieves on a set.
struct Evaluation {
  int64_t step = 0;  // of the training that the variables come from
  std::string set;   // TrainerSpec::evaluated_on
  // The file that they were read from; "": the training itself.
  std::string checkpoint = {};
  // Whether it is of the training, wherever that is interrupted and taken up
  // again: not where it only pauses (StopAtStep). Hooks that decide by
  // evaluations count no others.
  bool due = true;
  int64_t examples = 0;
  double seconds = 0;
  // "loss" first, then the model's metrics, over all examples.
  std::vector<std::pair<std::string, double>> values;
  // Null when there is none of that name.
  const double* Find(std::string_view name) const;
};

// Gets each batch with the model's exports for it; returns whether to go on.
using OnBatch =
    std::function<bool(const Example& batch, const Example& exports)>;

// What an evaluation asks and tells on its way. None is owned, each may be
// missing.
struct EvaluationWatch {
  const StopToken* stop = nullptr;
  Reporter* reporter = nullptr;
  OnBatch each = nullptr;  // has the exports computed, too
};

// How many examples the largest batch of an input has.
int64_t FullBatch(const Dataset& input);
// How many examples a batch holds, and the batch that it may be a share of.
int64_t RowsOf(const Example& batch);
int64_t WholeRowsOf(const Example& batch);
// The next of each, of iterators that have as many; false where they end.
bool NextOfEach(std::vector<Iterator>& batches, std::vector<Example>* next);

// One thread at a time.
class Inference {
 public:
  // Calls spec.input and spec.model with `run`, whose mode says for what; it
  // must not be kTrain. Throws Error.
  Inference(const TrainerSpec& spec, RunContext run,
            const SessionOptions& options);
  // Of several `workers` (of options.collective) each evaluates the shares of
  // its leaves of every batch. `devices` is not owned; where there are several
  // its leaves are theirs, and it is asked for evaluations alone.
  // `place`, unless null, may have variables stay where a training has them,
  // whose rows are then read there (graph/row_pieces.h). A batch is as large as
  // those of so many `steps` (TrainingRun::steps_at_once), for messages.
  using PlaceFn = std::function<void(Graph& graph, SessionOptions& session)>;
  Inference(const TrainerSpec& spec, RunContext run,
            const SessionOptions& options, const Workers& workers,
            DeviceThreads* devices, const PlaceFn& place = nullptr,
            int64_t steps = 1);

  // Values of the model's variables; others (optimizer slots) are ignored.
  // Throws Error naming what does not fit; `source` says where they are from.
  void SetVariables(const std::vector<NamedTensor>& values,
                    const std::string& source);
  // The same from a file (models/train/values/weights_file.h).
  void LoadWeights(const std::string& path);
  // The variables stay as they are, so that the model may be made faster
  // (Session::Freeze). Setting them is an error afterwards.
  void Freeze() { session_->Freeze(); }
  // Copies them, or their averages where there are such and `trained`, whether
  // a step was done, from the graph that trains the same model, whose variables
  // `read` reads.
  void CopyVariables(const Graph& graph, bool trained,
                     const std::function<Tensor(const Output&)>& read);

  // The whole set, the last batch as large as it is. nullopt when `watch` cut
  // it short. Waits for the other workers, which have the same figures then;
  // `watch.each` is for one worker, and so is Predict.
  std::optional<Evaluation> Evaluate(const EvaluationWatch& watch = {});

  // Calls fn for each batch, until it returns false or `stop`, unless null,
  // says so.
  void Predict(const OnBatch& fn, const StopToken* stop = nullptr);

  // The exports for one batch, in the model's order; the next call overwrites
  // them.
  std::span<const Tensor> Predict(const Example& batch) {
    return predict_->Run(batch);
  }
  // Plan for full batches (BatchStep::Prepare).
  StepInfo PreparePrediction();
  // BatchStep::info, of the last Predict or PreparePrediction.
  StepInfo prediction_info() const { return predict_->info(); }
  StepInfo PrepareEvaluation();
  // First values for all variables.
  void Initialize() { session_->Initialize(); }

  const Graph& graph() const { return graph_; }
  const Dataset& input() const { return input_; }
  const Session& session() const { return *session_; }
  const ModelSpec& model() const { return model_; }
  const Features& features() const { return *features_; }
  // Of the training, where they are known.
  const std::vector<std::string>& class_names() const {
    return run_.class_names;
  }

 private:
  // Calls fn for each device, on its thread where there are several.
  void OnDevices(const std::function<void(size_t device)>& fn);
  // Adds one share of a batch; whether `each`, unless null, wants to go on.
  bool EvaluateShare(BatchStep& step, const Example& share, const OnBatch& each,
                     MetricsOverSet& figures);
  // Of the model's exports, whose values they are.
  Example ExportsOf(std::span<const Tensor> values) const;

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
  NamedMetrics figures_;  // "loss", then the model's metrics
  std::unique_ptr<Session> session_;
  std::vector<std::unique_ptr<Session>> others_;  // of further devices
  // By device: fetches what the figures need.
  std::vector<std::unique_ptr<BatchStep>> evaluate_;
  std::unique_ptr<BatchStep> watched_;  // the same and the exports, once asked
  std::unique_ptr<BatchStep> predict_;  // fetches the exports
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_INFERENCE_H_
