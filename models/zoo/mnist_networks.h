// The three networks of the mnist program, shared with the benchmarks.
#ifndef SLUICE_MODELS_ZOO_MNIST_NETWORKS_H_
#define SLUICE_MODELS_ZOO_MNIST_NETWORKS_H_

#include <string>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// float32 images [batch,28,28,1] in [0,1] to logits [batch,10]. `model`:
//   softmax  one dense layer, 784-10
//   mlp      784-128-32-10 with ReLU, truncated-normal weights
//   cnn      conv 5x5x32, pool, conv 5x5x64, pool, dense 1024, dropout, dense
//   10
// Dropout acts when `training`. Throws Error for another name, listing these.
Output MnistNetwork(const Scope& scope, const std::string& model, Operand image,
                    bool training);

}  // namespace sluice

#endif  // SLUICE_MODELS_ZOO_MNIST_NETWORKS_H_
