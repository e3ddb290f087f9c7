#include "models/train/workers/pipeline_stages.h"

#include <fmt/format.h>

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

}  // namespace sluice
