// A training whose model is cut into stages (PipelineStages).
#include <algorithm>

#include "engine/ceil_div.h"
#include "graph/compile/cut_stages.h"
#include "graph/ops/control.h"
#include "models/train/run/training_run.h"

namespace sluice {

void TrainingRun::CutModel() {
  ThrowIfError(CutIntoStages(graph_, model_.loss,
                             FeedsOf(CeilDiv(batch_size(), workers_.leaves())),
                             DevicesOfStages(workers_.stages())));
}

std::vector<Output> TrainingRun::WithLoss(const std::vector<Output>& values) {
  const DeviceScope there(graph_, DevicesOfStages(workers_.stages()).back());
  const NameScope names(graph_, "measured");
  std::vector<Output> with_loss;
  for (const Output& value : values) with_loss.push_back(Identity(value));
  return with_loss;
}

// What is on no stage of its own is with the loss, on the first device. A stage
// has as many batches under way as there are stages from it on, so that the
// last has gradients for the first by the time that this has nothing else to do
// (one forward, one backward: PipeDream, 2019; Megatron-LM, 2021), and one
// more, whose tensors travel meanwhile.
SessionOptions TrainingRun::PlaceStages(SessionOptions session) const {
  session.devices = DevicesOfStages(workers_.stages());
  std::reverse(session.devices.begin(), session.devices.end());
  session.task = TaskOfStage(workers_.stage());
  session.cluster = options_.pipeline.peers;
  session.collective = nullptr;
  session.concurrent_runs = static_cast<int>(std::min<int64_t>(
      workers_.mine().size(), workers_.stages() - workers_.stage() + 1));
  return session;
}

}  // namespace sluice
