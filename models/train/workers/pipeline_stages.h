// A model whose layers are shared out over processes.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_PIPELINE_STAGES_H_
#define SLUICE_MODELS_TRAIN_WORKERS_PIPELINE_STAGES_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/peers.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Cluster;
namespace dist {
class Group;
}

// Stages of a pipeline: `count` processes, whose ranks follow one another, have
// the model together, and are a replica of it. The first of them has the last
// stage, where the loss is, so that rank 0 has that; the last has the first.
struct PipelineStages {
  int count = 1;
  // The processes of this one's replica (dist/cluster/peers.h), whose tasks are
  // named by stage: "/job:stage/task:0".
  std::shared_ptr<Cluster> peers = nullptr;

  bool any() const { return count > 1; }
};

std::string TaskOfStage(int stage);
// In the order of the stages.
std::vector<std::string> DevicesOfStages(int count);

// The part of a job (Collective::Subgroup) that has the same stage, of all
// replicas, by rank.
inline constexpr std::string_view kStageGroup = "stage";

// Of a job whose size is a multiple of `stages`, which all of its processes
// call: splits it, by stages and by replicas, and has those of a replica meet,
// as `peers` says but for their names and this one's host. `group` must outlive
// the result. Waits; throws Error.
PipelineStages MeetStages(dist::Group& group, int stages,
                          dist::PeersOptions peers);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_PIPELINE_STAGES_H_
