#include "models/train/workers/mirrored_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device.h"
#include "engine/status.h"

namespace sluice {

std::vector<std::string> ParseMirroredDevices(std::string_view text) {
  std::vector<std::string> devices;
  while (true) {
    const size_t comma = text.find(',');
    devices.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  CheckMirroredDevices(devices);
  return devices;
}

void CheckMirroredDevices(const std::vector<std::string>& devices) {
  std::vector<DeviceName> names;
  for (const std::string& device : devices) {
    const DeviceName name = ParseDeviceName(device).ValueOrThrow();
    const auto refuse = [&](std::string_view why) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("mirrored devices: '{}' {}", device, why));
    };
    if (!name.job.empty()) refuse("is another process's");
    if (name.type == DeviceType::kNull) refuse("computes nothing");
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      refuse("is there twice");
    }
    names.push_back(name);
    if (name.type != names[0].type) {
      refuse(fmt::format("is of another kind than '{}'", devices[0]));
    }
  }
}

}  // namespace sluice
