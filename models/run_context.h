// The arguments of a program's input, model and optimizer functions.
#ifndef SLUICE_MODELS_RUN_CONTEXT_H_
#define SLUICE_MODELS_RUN_CONTEXT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/shape.h"
#include "engine/visibility.h"
#include "io/pipeline/bad_examples.h"
#include "io/sources/datasets.h"

namespace SLUICE_PUBLIC sluice {

struct RunContext {
  Mode mode = Mode::kTrain;
  bool training() const { return mode == Mode::kTrain; }

  std::string data_dir;  // --data-dir; empty: none was given
  // The batch size, in examples, that the input function should give to Batch;
  // several workers share out each batch. Functions called after the input
  // function see the batch size that the input has.
  int64_t batch_size = 100;
  // Whether the batch size was asked for (--batch-size): training then throws
  // if the input has batches of another size.
  bool batch_size_given = false;
  double epochs = 1;  // infinity: until a hook or the input's end stops it
  int64_t steps = 0;  // steps to train; 0: train `epochs` instead
  uint64_t seed = 1;
  // This worker's rank and the number of workers; with virtual workers, the
  // first of this process's and the number of those. The input and the graph
  // must not depend on the rank.
  int64_t rank = 0;
  int64_t size = 1;
  // How many of the workers are this process's, which reads their examples.
  int64_t own = 1;
  // This process's rank among the job's processes on this host, from 0; as the
  // job started.
  int64_t local_rank = 0;
  // Whether batch normalisation is over the batches of all workers
  // (layers::BatchNormOptions::synchronized): it was asked for, and there are
  // several.
  bool sync_batch_norm = false;
  // For training: whether processes may come and go, so that `size` may change
  // meanwhile, also if it is 1 now.
  bool elastic = false;

  // Batches in a pass over the training data, which may be a fraction; 0 until
  // the input function has been called for training. If the number of examples
  // is not known: kEpochsEndWithInput, when an epoch ends with the input, or
  // all `steps`, which are then no pass over the data (epoch_is_all_steps).
  double steps_per_epoch = 0;
  static constexpr double kEpochsEndWithInput = -1;
  bool epoch_is_all_steps = false;
  // Whether a number of epochs can be converted to steps.
  bool knows_epochs() const {
    return steps_per_epoch != kEpochsEndWithInput && !epoch_is_all_steps;
  }
  bool knows_total_steps() const { return steps > 0 || steps_per_epoch >= 0; }
  // The step that training ends with: steps, or epochs * steps_per_epoch,
  // rounded up; kEndless if these are no fewer, as for infinite epochs. Throws
  // Error if that is not known.
  int64_t total_steps() const;
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  // A number of steps that was reckoned from epochs, rounded up but for
  // rounding errors: 0 if it is negative or NaN, at most kEndless.
  static int64_t WholeSteps(double steps);

  // For evaluation and prediction, from the training's checkpoint: the names of
  // the classes (TrainerSpec::class_names) and the position of its input
  // (Iterator::SavePosition), which names the input. Empty while training and
  // for weights from elsewhere.
  std::vector<std::string> class_names = {};
  std::string trained_on = {};
  // For prediction by an exported model: the shapes of its inputs, by name, the
  // first dimension kUnknown; class_names are then the training's as far as
  // known. Empty otherwise.
  std::map<std::string, Shape> exported_inputs = {};

  // Files to predict for, if any were named (TrainerSpec::files): they are then
  // the input, in this order, which has no meaningful labels.
  std::vector<std::string> files = {};

  // Counts the bad examples that the input function's map, which reads
  // examples, may skip: none unless the run allows some.
  std::shared_ptr<BadExamples> bad_examples = std::make_shared<BadExamples>(0);

  // Threads for MapOptions of that map, if it may run on several; 0: as many as
  // help.
  int input_threads = 1;

  // The most bytes of examples that are prepared ahead (Dataset::MakeIterator),
  // each for the training and the evaluation input. 0: MakeIterator's default.
  size_t input_bytes = 0;

  // The value of one of the program's own flags (TrainerSpec::flags), by name.
  // Throws Error for a flag that is not declared.
  const std::string& flag(const std::string& name) const;
  std::map<std::string, std::string> flags;

  // By name, what the input function has found a flag's value such as "auto" to
  // mean for the training data. The training's record (run.json) has it as the
  // flag's value, so that commands on the training use the same.
  std::shared_ptr<std::map<std::string, std::string>> found_flags =
      std::make_shared<std::map<std::string, std::string>>();
};

}  // namespace sluice

#endif  // SLUICE_MODELS_RUN_CONTEXT_H_
