// Files of weights to begin with: ours, or PyTorch's with the module names of
// torchvision's models.
//
//   ours                               PyTorch
//   layer1/0/conv1/weights [h,w,i,o]   layer1.0.conv1.weight [o,i,h,w]
//   fc/weights [in,out], fc/bias       fc.weight [out,in], fc.bias
//   bn1/scale, bn1/offset              bn1.weight, bn1.bias
//   bn1/running_mean                   bn1.running_mean
//   bn1/running_variance               bn1.running_var
#ifndef SLUICE_MODELS_TRAIN_WEIGHTS_FILE_H_
#define SLUICE_MODELS_TRAIN_WEIGHTS_FILE_H_

#include <string>
#include <vector>

#include "graph/session/session.h"
#include "models/train/variable_values.h"

namespace sluice {

// Gives `variables` the values of a safetensors file. A file that has PyTorch's
// names and none of ours is read as PyTorch's, "num_batches_tracked" of batch
// norm being passed over; in one of ours, what a checkpoint holds beside the
// variables (slots and the step) is passed over, and averages come before the
// values they are of. Where a tensor is missing, left over or has another dtype
// or shape, nothing is written and the error (kInvalidArgument) lists them by
// the names of the file.
Status LoadWeights(Session& session, const std::vector<Output>& variables,
                   const std::string& path);

// Names and dimensions of the right-hand side of the table.
WeightLayout PyTorchLayout();

// The tensors of a checkpoint with "<variable>/average" in place of
// "<variable>", where there is one (Optimizer::WithAverages).
std::vector<NamedTensor> PreferAverages(std::vector<NamedTensor> tensors);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WEIGHTS_FILE_H_
