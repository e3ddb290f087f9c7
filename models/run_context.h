// What a program's input, model and optimizer functions are told.
#ifndef SLUICE_MODELS_RUN_CONTEXT_H_
#define SLUICE_MODELS_RUN_CONTEXT_H_

#include <cstdint>
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
  // What the input function is asked to give to Batch; several workers share
  // out each of them. What the input has counts from then on: the functions
  // that are called after it are told that.
  int64_t batch_size = 100;
  // Whether a person asked for it (--batch-size): training throws where the
  // input has batches of another size.
  bool batch_size_given = false;
  double epochs = 1;
  int64_t steps = 0;  // to train in place of epochs; 0: epochs
  uint64_t seed = 1;
  // This worker and the number of them; with virtual ones the first of this
  // process's and the number of these. The input and the graph must not depend
  // on which it is.
  int64_t rank = 0;
  int64_t size = 1;
  // How many of these are this process's, which reads their examples.
  int64_t own = 1;
  // Of the job's processes on this host, from 0 on; as it started with.
  int64_t local_rank = 0;
  // Whether batch normalisation is to be by the batches of all of them
  // (layers::BatchNormOptions::synchronized): asked for, and there are several.
  bool sync_batch_norm = false;
  // Of a training: whether processes may come and go, so that `size` becomes
  // another while it goes on, also where it is 1 now.
  bool elastic = false;

  // Batches in a pass over the training data, which may be a fraction; 0 until
  // the input function has been called for training. Where it is not known how
  // many examples there are: kEpochsEndWithInput, when an epoch ends where the
  // input does, or all `steps`, which are then no pass over the data.
  double steps_per_epoch = 0;
  static constexpr double kEpochsEndWithInput = -1;
  bool epoch_is_all_steps = false;
  // Whether what is told in epochs can be told in steps.
  bool knows_epochs() const {
    return steps_per_epoch != kEpochsEndWithInput && !epoch_is_all_steps;
  }
  bool knows_total_steps() const { return steps > 0 || steps_per_epoch >= 0; }
  // The step that training ends with: steps, or epochs * steps_per_epoch,
  // rounded up. Throws Error where that is not known.
  int64_t total_steps() const;

  // Of what is evaluated or predicted, what its checkpoint says of the
  // training: the names of the classes (TrainerSpec::class_names) and where its
  // input stood (Iterator::SavePosition), which names the input. Empty while
  // training and for weights from elsewhere.
  std::vector<std::string> class_names = {};
  std::string trained_on = {};
  // Of an exported model that predicts, the shapes of what it takes, by name,
  // the first dimension kUnknown; class_names are then what is known of the
  // training's. Empty of any other.
  std::map<std::string, Shape> exported_inputs = {};

  // Files to predict for, if any were named (TrainerSpec::files): the input is
  // then these, in this order, and has no meaningful labels.
  std::vector<std::string> files = {};

  // For the map of the input function that reads examples: the bad ones that
  // it may pass over. None unless the run allows some.
  std::shared_ptr<BadExamples> bad_examples = std::make_shared<BadExamples>(0);

  // For MapOptions of that map, where it may run on several threads; 0: as many
  // as help.
  int input_threads = 1;

  // The most bytes that examples take which are ready ahead, as
  // Dataset::MakeIterator has it: of what is trained on, and as much of what
  // is evaluated. 0: as that says.
  size_t input_bytes = 0;

  // The program's own flags (TrainerSpec::flags) by name. Throws Error for one
  // that is not declared.
  const std::string& flag(const std::string& name) const;
  std::map<std::string, std::string> flags;

  // What the input function found a flag such as "auto" to mean for what is
  // trained on: the record of the training (run.json) has it in that flag's
  // place, so that commands on it go by the same.
  std::shared_ptr<std::map<std::string, std::string>> found_flags =
      std::make_shared<std::map<std::string, std::string>>();
};

}  // namespace sluice

#endif  // SLUICE_MODELS_RUN_CONTEXT_H_
