// Devices of one process that train one model together, each with its share of
// every batch.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_MIRRORED_DEVICES_H_
#define SLUICE_MODELS_TRAIN_WORKERS_MIRRORED_DEVICES_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

struct MirroredDevices {
  // This process's, by name, of one kind, each once. Empty: a training is on
  // the first of SessionOptions::devices.
  std::vector<std::string> devices;
  // Whether each has all variables and updates them itself, as the others do;
  // else they are on "/cpu:0", which updates, and devices have copies of those
  // that they compute with.
  bool variables_on_each = false;

  bool any() const { return !devices.empty(); }
};

// "/gpu:0,/gpu:1". Throws Error(kInvalidArgument) for what cannot be
// MirroredDevices::devices.
std::vector<std::string> ParseMirroredDevices(std::string_view text);
// Throws the same where there are some and they are not as said.
void CheckMirroredDevices(const std::vector<std::string>& devices);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_MIRRORED_DEVICES_H_
