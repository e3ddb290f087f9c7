// Trainings on several devices of the host.
#ifndef SLUICE_TESTS_SUPPORT_MIRRORED_H_
#define SLUICE_TESTS_SUPPORT_MIRRORED_H_

#include <string>
#include <vector>

#include "models/train/run/training_options.h"

namespace sluice::testing {

// "/cpu:0", "/cpu:1", ...
inline std::vector<std::string> CpuDevices(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back("/cpu:" + std::to_string(i));
  }
  return devices;
}

// The options, of a deterministic training on so many of these.
inline TrainingOptions OnDevices(int count, bool variables_on_each,
                                 TrainingOptions options = {}) {
  options.mirrored = {CpuDevices(count), variables_on_each};
  options.session.deterministic = true;
  return options;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_MIRRORED_H_
