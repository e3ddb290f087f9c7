// Normalisation layers' ops.
#ifndef SLUICE_GRAPH_OPS_NORM_H_
#define SLUICE_GRAPH_OPS_NORM_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.9;  // the weight of the old running value
};

// All but y are vectors over the channels.
struct BatchNormOutputs {
  Output y;
  Output mean;     // of the batch
  Output inv_std;  // 1 / sqrt(biased variance of the batch + epsilon)
  // momentum * old + (1 - momentum) * batch, the variance the unbiased one.
  // The op only computes them; assign them to the running variables.
  Output new_running_mean;
  Output new_running_variance;
};

// Training: y = (x - mean) * inv_std * scale + offset with the statistics of
// the batch, over all dimensions but the last (Ioffe and Szegedy, 2015). Those
// of an empty batch are mean 0 and variance 0, and the running ones stay.
BatchNormOutputs BatchNorm(Operand x, Operand scale, Operand offset,
                           Operand running_mean, Operand running_variance,
                           const BatchNormOptions& options = {});

// Inference: the same with the statistics given.
Output BatchNormInference(Operand x, Operand scale, Operand offset,
                          Operand mean, Operand variance,
                          double epsilon = 1e-5);

// Normalises over the last dimension (Ba, Kiros and Hinton, 2016); scale and
// offset are vectors over it.
Output LayerNorm(Operand x, Operand scale, Operand offset,
                 double epsilon = 1e-5);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_NORM_H_
