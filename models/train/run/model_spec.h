// What a program tells the trainer: an input, a model and an optimizer
// function, in the shape that users of tf.estimator and MoXing know.
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
  // One placeholder for each tensor of `batch`, of its name, dtype and shape
  // but for the first dimension, the batch, which is unknown. Throws Error for
  // a tensor without dimensions. `to_floats` is what the graph does with those
  // tensors of which the batches have the bytes (Dataset::LeaveBytes).
  Features(Graph& graph, const Example& batch,
           std::vector<BytesToFloats> to_floats = {});
  // Throws Error(kNotFound) that lists the names there are.
  Output operator[](std::string_view name) const;
  // The same, declaring that more of its dimensions differ from batch to batch,
  // such as 1, the length of a batch's longest sentence. Call it before the
  // feature is used; throws Error otherwise, and for a dimension there is not.
  // Changes the placeholder. A step is planned for each shape that comes; what
  // is planned before the first batch, and what memory it is said to need, is
  // for the length of the input's first example.
  Output Varying(std::string_view name,
                 const std::vector<int>& dimensions) const;
  auto begin() const { return placeholders_.begin(); }
  auto end() const { return placeholders_.end(); }
  size_t size() const { return placeholders_.size(); }
  // Adds a float32 scalar that comes with each batch. Throws Error where the
  // name is taken.
  Output AddScalar(Graph& graph, const std::string& name);
  // Shapes of a batch of so many examples, in the order of the placeholders:
  // what varies is as in the batch that the features were made of, which has
  // one example.
  std::vector<Shape> ShapesFor(int64_t examples) const;

 private:
  Output Placeholder(std::string_view name) const;

  NamedOutputs placeholders_;
  std::vector<Shape> sample_;  // parallel
  std::vector<BytesToFloats> to_floats_;
  // By name, of those that were asked for.
  mutable std::map<std::string, Output, std::less<>> floats_;
};

struct ModelSpec {
  // A floating-point scalar, the mean over the batch.
  Output loss;
  // One value per example, or the batch's mean as a scalar, or what keeps a
  // state over the set (models/nn/metrics.h). The first judges checkpoints and
  // stops early.
  NamedMetrics metrics = {};
  // What prediction and exported models yield: one row per example.
  NamedOutputs exports = {};
  // Further tensors for TensorBoard: scalars as such, others as histograms.
  NamedOutputs summaries = {};
};

// A command line flag of the program's own: --name VALUE, or --name alone.
struct Flag {
  std::string name;
  std::string help;
  std::string value;  // when it is not given
  // What the value may be; of kPath and kData, what is no path. Empty:
  // anything.
  std::vector<std::string> choices = {};
  enum class Kind : uint8_t {
    kText,
    kPath,    // a file or folder, or one of the choices
    kData,    // the same: what is trained on or evaluated
    kSwitch,  // "true" for --name, "false" for --name=false
  };
  Kind kind = Kind::kText;
  // It says how to read those of kData, or --data-dir: a training's is not that
  // of other ones.
  bool of_data = false;
  // Of a flag that says which part of what is trained on is kept back, to
  // evaluate on: whether the data that a run names can be split so. A
  // training's is that of trainings on other data, too, where they can; other
  // data that are evaluated are taken whole. Null: it is no such flag.
  std::function<bool(const RunContext& run)> splits_data = nullptr;
  // Of the learning rate that TrainerSpec::optimizer makes: how high it is, or
  // its course. --learning-rate takes the place of both; beside --optimizer,
  // which has a rate of its own, the program's is kept where a flag of kHeight
  // is given. At most one is that.
  enum class Rate : uint8_t { kNone, kHeight, kCourse };
  Rate rate = Rate::kNone;
  // It says how what is predicted for becomes the model's input, whatever data
  // it is: an exported model has it (ExportInfo::flags).
  bool of_reading = false;
};

struct TrainerSpec {
  std::string name;  // of the program
  // For run.mode, batches of run.batch_size, or of another size where the
  // program has its own and nobody asked for one. For training it usually
  // shuffles by seed and repeats; otherwise it ends. Several workers call it
  // alike, and the trainer shares the batches out (Dataset::Share).
  std::function<Dataset(const RunContext& run)> input;
  // Builds the model below `scope`. Variables must have the same names in
  // every mode.
  std::function<ModelSpec(Scope& scope, const Features& in,
                          const RunContext& run)>
      model;
  // Null: Adam.
  std::function<Optimizer(const RunContext& run)> optimizer = nullptr;
  // Whether that one's learning rate goes by run.batch_size, the whole job's,
  // so that --scale-learning-rate has nothing to add.
  bool rate_by_batch_size = false;

  std::vector<Flag> flags = {};
  // What `predict` may be given on the command line, such as "JPEG or PNG
  // images"; empty: nothing. The input function finds the names in run.files.
  std::string files = {};
  // Names of the classes, for predictions on files. Null or an empty list:
  // none. Those of a training are in its checkpoints, and it is resumed with
  // the same alone.
  std::function<std::vector<std::string>(const RunContext& run)> class_names =
      nullptr;
  // Of what an evaluation is of, what its examples are called, such as their
  // files, in the order of the input. Null or an empty list: not known.
  std::function<std::vector<std::string>(const RunContext& run)> example_names =
      nullptr;
  // Sets epochs and batch_size, which flags then override; may look at
  // run.flags and run.data_dir.
  std::function<void(RunContext& run)> defaults = nullptr;
  // Names in reports. Null: the program's; data_dir or "synthetic".
  std::function<std::string(const RunContext& run)> model_name = nullptr;
  std::function<std::string(const RunContext& run)> dataset_name = nullptr;
  // What the examples are that an evaluation is of, for reports: "test",
  // "validation", or "training" where they are those that were trained on.
  // Null: "test".
  std::function<std::string(const RunContext& run)> evaluated_on = nullptr;
  // Of the first metric; without metrics the loss judges, lower being better.
  bool higher_is_better = true;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_MODEL_SPEC_H_
