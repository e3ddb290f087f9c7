// A training whose model is cut into stages (PipelineStages).
#include <algorithm>
#include <map>

#include "engine/ceil_div.h"
#include "engine/device.h"
#include "graph/compile/cut_stages.h"
#include "graph/ops/control.h"
#include "graph/session/cluster.h"
#include "models/train/run/training_run.h"

namespace sluice {
namespace {

// As if each process had but one, so that the graph is the same for all
// replicas.
std::vector<std::string> FirstOfEach(int stages, DeviceType type) {
  std::vector<std::string> devices = DevicesOfStages(stages);
  for (std::string& device : devices) {
    device = TaskOf(device) + DeviceName{.type = type}.ToString();
  }
  return devices;
}

}  // namespace

void TrainingRun::CutModel() {
  const DeviceType type = OwnDevice(options_).type;
  workers_.RequireSame("kind of device", NameOf(type));
  ThrowIfError(CutIntoStages(graph_, model_.loss,
                             FeedsOf(CeilDiv(batch_size(), workers_.leaves())),
                             FirstOfEach(workers_.stages(), type)));
}

std::vector<Output> TrainingRun::WithLoss(const std::vector<Output>& values) {
  const DeviceScope there(graph_, session_->options().devices[0]);
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
  DeviceName device = OwnDevice(options_);
  const std::vector<std::string> cut =
      FirstOfEach(workers_.stages(), device.type);
  const std::vector<int> indices = workers_.GatherEach("GPU", device.index);
  std::map<std::string, std::string> place;
  session.devices.clear();
  for (int stage = workers_.stages() - 1; stage >= 0; --stage) {
    const int first = workers_.replica() * workers_.stages();
    device.index = device.type == DeviceType::kCpu
                       ? 0
                       : indices[first + workers_.FirstWith(stage)];
    session.devices.push_back(TaskOfStage(stage) + device.ToString());
    place[cut[stage]] = session.devices.back();
  }
  for (const auto& node : graph_.nodes()) {
    const auto found = place.find(node->device());
    if (found != place.end()) node->set_device(found->second);
  }
  if (session.soft_placement && device.type != DeviceType::kCpu) {
    for (int stage = workers_.stages() - 1; stage >= 0; --stage) {
      session.devices.push_back(TaskOfStage(stage) + "/cpu:0");
    }
  }
  session.task = TaskOfStage(workers_.stage());
  session.cluster = options_.pipeline.peers;
  session.collective = nullptr;
  session.concurrent_runs = static_cast<int>(std::min<int64_t>(
      workers_.mine().size(), workers_.stages() - workers_.stage() + 1));
  return session;
}

}  // namespace sluice
