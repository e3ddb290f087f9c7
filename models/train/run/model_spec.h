// What a program gives the trainer: an input, a model and an optimizer
// function, in the form that users of tf.estimator and MoXing know.
#ifndef SLUICE_MODELS_TRAIN_RUN_MODEL_SPEC_H_
#define SLUICE_MODELS_TRAIN_RUN_MODEL_SPEC_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/rowwise_map.h"
#include "models/nn/metrics.h"
#include "models/optim/optimizers.h"
#include "models/run_context.h"

namespace SLUICE_PUBLIC sluice {

using NamedOutputs = std::vector<std::pair<std::string, Output>>;

// The tensors of a batch as placeholders: in["image"].
class Features {
 public:
  // Makes one placeholder for each tensor of `batch`, with its name, dtype and
  // shape, but an unknown first dimension, the batch. Throws Error for a tensor
  // without dimensions. `to_floats`: the conversion that the graph does for
  // tensors that come in batches as bytes (Dataset::LeaveBytes).
  Features(Graph& graph, const Example& batch,
           std::vector<BytesToFloats> to_floats = {});
  // The feature of that name. Throws Error(kNotFound) listing the names.
  Output operator[](std::string_view name) const;
  // The feature of that name, declaring that more of its dimensions differ from
  // batch to batch, such as 1, the length of a batch's longest sentence. It
  // changes the placeholder: call it before the feature is used. Throws Error
  // otherwise, and for a dimension that does not exist. A step is planned for
  // each shape that comes; the plan made before the first batch, and the memory
  // reported for it, are for the length of the input's first example.
  Output Varying(std::string_view name,
                 const std::vector<int>& dimensions) const;
  auto begin() const { return placeholders_.begin(); }
  auto end() const { return placeholders_.end(); }
  size_t size() const { return placeholders_.size(); }
  // Adds a float32 scalar that comes with each batch. Throws Error if the name
  // is taken.
  Output AddScalar(Graph& graph, const std::string& name);
  // The shapes of a batch of `examples` examples, in the order of the
  // placeholders. Varying dimensions are as in the batch that the features were
  // made from, which has one example.
  std::vector<Shape> ShapesFor(int64_t examples) const;

 private:
  Output Placeholder(std::string_view name) const;

  NamedOutputs placeholders_;
  std::vector<Shape> sample_;  // parallel
  std::vector<BytesToFloats> to_floats_;
  // The converted tensors, by name, of the features that were asked for.
  mutable std::map<std::string, Output, std::less<>> floats_;
};

// `Main` refuses metrics and exports of equal names, and those that the events
// of --json have for something else, such as "loss", "step" or "index".
struct ModelSpec {
  // A floating-point scalar, the mean over the batch. In Mode::kPredict it may
  // be left out.
  Output loss = {};
  // Each is one value per example, or the batch's mean as a scalar, or a metric
  // with a state over the set (models/nn/metrics.h). The first one decides
  // which checkpoint is best and when to stop early.
  NamedMetrics metrics = {};
  // The outputs of prediction and of exported models: one row per example. A
  // scalar is an error when the model is made, other rows are when it predicts.
  NamedOutputs exports = {};
  // Further tensors for TensorBoard: scalars as such, others as histograms.
  NamedOutputs summaries = {};
};

// A command line flag of the program's own: --name VALUE, or --name alone.
struct Flag {
  std::string name;
  std::string help;
  std::string value;  // when it is not given
  // The allowed values; for kPath and kData, those that are no path. Empty: any
  // value.
  std::vector<std::string> choices = {};
  enum class Kind : uint8_t {
    kText,
    kPath,    // a file or folder, or one of the choices
    kData,    // as kPath: data to train on or to evaluate
    kSwitch,  // "true" for --name, "false" for --name=false
  };
  Kind kind = Kind::kText;
  // Whether the flag says how to read the data of kData flags or --data-dir. A
  // training's value is then not used for other data.
  bool of_data = false;
  // Of a flag that not all data take: whether those that a run names do, to
  // train on them (RunContext::training()) or for anything else. A training's
  // is that of commands on other data, too, where these take it, and is left
  // out elsewhere, where it would be an error. Null: all take it.
  std::function<bool(const RunContext& run)> fits_data = nullptr;
  // Whether the flag sets the height, or the course, of the learning rate that
  // TrainerSpec::optimizer makes. --learning-rate replaces both. --optimizer
  // brings a rate of its own, but the program's is kept if a flag of kHeight is
  // given. At most one flag is kHeight.
  enum class Rate : uint8_t { kNone, kHeight, kCourse };
  Rate rate = Rate::kNone;
  // Whether the flag says how data to predict for, whatever they are, become
  // the model's input: an exported model then stores it (ExportInfo::flags).
  bool of_reading = false;
};

struct TrainerSpec {
  std::string name;  // of the program
  // Returns the input for run.mode, in batches of run.batch_size, or of a size
  // of the program's own if none was asked for. For training it usually
  // shuffles by seed and repeats; otherwise it ends. All workers call it alike,
  // and the trainer shares the batches out (Dataset::Share).
  std::function<Dataset(const RunContext& run)> input;
  // Builds the model below `scope`. Variables must have the same names in
  // every mode.
  std::function<ModelSpec(Scope& scope, const Features& in,
                          const RunContext& run)>
      model;
  // Null: Adam.
  std::function<Optimizer(const RunContext& run)> optimizer = nullptr;
  // Whether the optimizer's learning rate is scaled by run.batch_size, that of
  // the whole job, so that --scale-learning-rate changes nothing.
  bool rate_by_batch_size = false;

  std::vector<Flag> flags = {};
  // The kind of files that `predict` takes on the command line, such as "JPEG
  // or PNG images"; empty: none. The input function finds their names in
  // run.files.
  std::string files = {};
  // Names of the classes, for predictions on files. Null or an empty list:
  // none. A training's checkpoints have them, and it can only be resumed with
  // the same names.
  std::function<std::vector<std::string>(const RunContext& run)> class_names =
      nullptr;
  // Names of the examples that are evaluated, such as their files, in the order
  // of the input. Null or an empty list: not known.
  std::function<std::vector<std::string>(const RunContext& run)> example_names =
      nullptr;
  // Sets epochs and batch_size, which flags then override; may look at
  // run.flags and run.data_dir.
  std::function<void(RunContext& run)> defaults = nullptr;
  // Names in reports. Null: the program's; data_dir or "synthetic".
  std::function<std::string(const RunContext& run)> model_name = nullptr;
  std::function<std::string(const RunContext& run)> dataset_name = nullptr;
  // The name, for reports, of the set that is evaluated: "test", "validation",
  // or "training" if its examples were trained on. Null: "test".
  std::function<std::string(const RunContext& run)> evaluated_on = nullptr;
  // Whether a higher value of the first metric is better. Without metrics the
  // loss is compared, and lower is better.
  bool higher_is_better = true;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_MODEL_SPEC_H_
