// Horovod's name for an optimizer of one of several workers, beside the verbs
// of dist/dist.h:
//
//   dist::Init();
//   Operation train = dist::DistributedOptimizer(optimizers::Sgd(0.1))
//       .Minimize(loss);  // of this process's examples
//   Session session(graph, {.collective = dist::JobCollective()});
//   dist::BroadcastVariables(session, graph.Variables());
#ifndef SLUICE_MODELS_OPTIM_DISTRIBUTED_OPTIMIZER_H_
#define SLUICE_MODELS_OPTIM_DISTRIBUTED_OPTIMIZER_H_

#include <utility>

#include "models/optim/optimizers.h"

namespace sluice::dist {

// `optimizer`, with gradients that are the means over all workers.
inline Optimizer DistributedOptimizer(const Optimizer& optimizer,
                                      AllReduceOptions options = {}) {
  return optimizer.WithAllReduce(std::move(options));
}

}  // namespace sluice::dist

#endif  // SLUICE_MODELS_OPTIM_DISTRIBUTED_OPTIMIZER_H_
