// Statistics over the batches of all workers. Internal to models/nn.
#ifndef SLUICE_MODELS_NN_GROUP_MOMENTS_H_
#define SLUICE_MODELS_NN_GROUP_MOMENTS_H_

#include "graph/graph.h"

namespace sluice {

// Moments of each channel (the last dimension) of x over all workers together,
// in x's dtype, or float32 if that is half. Differentiable.
struct GroupMoments {
  Output mean;
  Output variance;  // the biased one
  Output rows;      // the number of values, a scalar of that dtype
};
GroupMoments GroupMomentsOf(const Output& x);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_GROUP_MOMENTS_H_
