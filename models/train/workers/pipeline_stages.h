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
// The devices of the stages, in order.
std::vector<std::string> DevicesOfStages(int count);

// The name of the part of a job (Collective::Subgroup) that has the same stage
// in all replicas, by rank.
inline constexpr std::string_view kStageGroup = "stage";

// Splits a job, whose size must be a multiple of `stages`, by stages and by
// replicas, and lets the processes of each replica meet by `peers`, except for
// the names and this process's host in it. All processes must call it. `group`
// must outlive the result. Waits; throws Error.
PipelineStages MeetStages(dist::Group& group, int stages,
                          dist::PeersOptions peers);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_PIPELINE_STAGES_H_
