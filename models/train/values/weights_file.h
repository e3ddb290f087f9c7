// Files of weights to begin with: ours, or PyTorch's with the module names of
// torchvision's models, as safetensors or as torch.save wrote them.
//
//   ours                               PyTorch
//   layer1/0/conv1/weights [h,w,i,o]   layer1.0.conv1.weight [o,i,h,w]
//   fc/weights [in,out], fc/bias       fc.weight [out,in], fc.bias
//   words/table [size,dimensions]      words.weight [size,dimensions]
//   bn1/scale, bn1/offset              bn1.weight, bn1.bias
//   bn1/running_mean                   bn1.running_mean
//   bn1/running_variance               bn1.running_var
#ifndef SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_FILE_H_
#define SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/session/session.h"
#include "models/train/values/variable_values.h"

namespace SLUICE_PUBLIC sluice {

struct WeightsOptions {
  // Patterns (models/optim/name_pattern.h) of variables that keep the values
  // they have, such as a last layer for other classes: "fc/*,logits/*". The
  // file may lack them or have them with another dtype and shape.
  std::string reset = "";
};

struct LoadedWeights {
  int64_t tensors = 0;             // given to variables
  int64_t converted = 0;           // of these, from another dtype
  std::vector<std::string> reset;  // variables that kept their values
};

// Gives `variables` the values of a file of weights (ReadWeightTensors). One
// that has PyTorch's names and none of ours is read as PyTorch's,
// "num_batches_tracked" of batch norm being passed over; in one of ours, what a
// checkpoint holds beside the variables (slots and the step) is passed over,
// and averages come before the values they are of. What wrappers of a model put
// before the names of all tensors, "module.", "model." and "_orig_mod.", is
// dropped unless variables have it, too. The global step (GlobalStep) is no
// weight: it keeps its value, or is 0. Variables of float32 and float64 take
// any floating dtype, rounded to nearest even. One that has a value, and whose
// rows are on several devices, is given them a few at a time where the file is
// one of ours and has its dtype: no process has them all.
//
// Where a tensor is missing, left over, has another dtype or shape or a number
// beyond float32, nothing is written and the error (kInvalidArgument) lists
// them by the names of the file, without such prefixes. So it is where a
// pattern is empty or matches no variable, and where PyTorch would have one
// dimension in two orders (models/train/values/flattened_images.h).
Result<LoadedWeights> LoadWeightsWith(Session& session,
                                      const std::vector<Output>& variables,
                                      const std::string& path,
                                      const WeightsOptions& options);
// LoadWeightsWith without options: no variable keeps its value.
Status LoadWeights(Session& session, const std::vector<Output>& variables,
                   const std::string& path);

// The tensors of a file in PyTorch's own format (io/checkpoints/pth.h) or else
// in that of safetensors, whoever wrote it. The errors are those of the two
// readers.
Result<std::vector<NamedTensor>> ReadWeightTensors(const std::string& path);

// Names and dimensions of the right-hand side of the table.
WeightLayout PyTorchLayout();

// The tensors of a checkpoint with "<variable>/average" in place of
// "<variable>", where there is one (Optimizer::WithAverages) and a step was
// done: before the first they are zeros, and are left out. `variables` are the
// model's, of which one may have such a name itself.
std::vector<NamedTensor> PreferAverages(std::vector<NamedTensor> tensors,
                                        const std::vector<Output>& variables);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_WEIGHTS_FILE_H_
