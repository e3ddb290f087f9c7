// Residual networks (He, Zhang, Ren and Sun, "Deep Residual Learning for Image
// Recognition", 2015).
//
//   resnet18, resnet34             basic blocks: two 3x3 convolutions
//   resnet50, resnet101, resnet152 bottleneck blocks: 1x1, 3x3, 1x1; v1.5
//   resnet50_v1, resnet101_v1, resnet152_v1   the same as in the paper, v1
//   resnet20, resnet56             for CIFAR's 32x32 images (section 4.2)
//
// Where a bottleneck block halves the image, v1 does so in its first 1x1
// convolution, v1.5 (torchvision, and the published benchmarks) in the 3x3 one:
// half a per cent more accurate for 6 % more arithmetic. Basic blocks always
// do so in their first 3x3 convolution, so that resnet18 and resnet34 have no
// two versions. Shortcuts that change shape are 1x1 convolutions with batch
// norm (option B of the paper); those of the CIFAR networks take every second
// pixel and pad the channels with zeros on both sides (option A), as the paper
// does there.
//
// Variables are named as in torchvision (models/train/values/weights_file.h).
#ifndef SLUICE_MODELS_ZOO_RESNET_H_
#define SLUICE_MODELS_ZOO_RESNET_H_

#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "models/nn/classifier.h"

namespace SLUICE_PUBLIC sluice {

struct ResNetOptions {
  int64_t classes = 1000;
  // For batch normalisation, as in layers::BatchNormOptions.
  bool training = false;
  bool synchronized = false;
  // For the classifier, as in layers::ClassifierOptions.
  int64_t workers = 1;
  int64_t share = 0;
};

// The logits, [n, classes], of images [n, height, width, channels]. Throws
// Error(kNotFound), listing the names, for an unknown model.
Output ResNet(const Scope& scope, const std::string& model, Operand image,
              const ResNetOptions& options = {});

// The ResNet's classifier, whose classes may be cut over workers.
layers::Classifier ResNetClassifier(const Scope& scope,
                                    const std::string& model, Operand image,
                                    const ResNetOptions& options = {});

// All names that ResNet knows.
const std::vector<std::string>& ResNetNames();
// Whether the network is meant for 32x32 images.
bool IsCifarResNet(const std::string& model);

}  // namespace sluice

#endif  // SLUICE_MODELS_ZOO_RESNET_H_
