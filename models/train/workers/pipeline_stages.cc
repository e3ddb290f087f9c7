#include "models/train/workers/pipeline_stages.h"

#include <fmt/format.h>

#include "dist/collective/group.h"

namespace sluice {

std::string TaskOfStage(int stage) {
  return fmt::format("/job:stage/task:{}", stage);
}

std::vector<std::string> DevicesOfStages(int count) {
  std::vector<std::string> devices;
  for (int stage = 0; stage < count; ++stage) {
    devices.push_back(TaskOfStage(stage) + "/cpu:0");
  }
  return devices;
}

PipelineStages MeetStages(dist::Group& group, int stages,
                          dist::PeersOptions peers) {
  constexpr std::string_view kReplicaGroup = "replica";
  ThrowIfError(group.Split(kReplicaGroup, group.rank() / stages));
  ThrowIfError(group.Split(kStageGroup, group.rank() % stages));
  peers.task.name = fmt::format("/job:worker/task:{}", group.rank());
  peers.host = group.address();
  return {
      stages,
      dist::MakePeers(peers, *group.Subgroup(kReplicaGroup)).ValueOrThrow()};
}

}  // namespace sluice
