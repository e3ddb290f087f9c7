#include "engine/device.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <random>

namespace sluice {

std::string DeviceName::ToString() const {
  const std::string here = fmt::format("/{}:{}", NameOf(type), index);
  return job.empty() ? here : fmt::format("/job:{}/task:{}{}", job, task, here);
}

namespace {

// Takes "<prefix>7" off the front of `text`; nothing if it is not there.
std::optional<int> TakeNumber(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return std::nullopt;
  const char* const begin = text->data() + prefix.size();
  const char* const end = text->data() + text->size();
  int number = -1;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text->remove_prefix(stop - text->data());
  return number;
}

// Takes "/job:worker" off the front of `text`: small letters, digits and "_",
// a letter first. Empty if it is not there.
std::string TakeJob(std::string_view* text) {
  constexpr std::string_view kPrefix = "/job:";
  if (!text->starts_with(kPrefix)) return "";
  const std::string_view rest = text->substr(kPrefix.size());
  const std::string_view name = rest.substr(
      0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"));
  if (name.empty() || name[0] < 'a') return "";
  text->remove_prefix(kPrefix.size() + name.size());
  return std::string(name);
}

std::optional<DeviceName> Parsed(std::string_view text) {
  DeviceName name;
  name.job = TakeJob(&text);
  if (!name.job.empty()) {
    const std::optional<int> task = TakeNumber(&text, "/task:");
    if (!task) return std::nullopt;
    name.task = *task;
  }
  for (DeviceType type :
       {DeviceType::kCpu, DeviceType::kCuda, DeviceType::kNull}) {
    const std::optional<int> index =
        TakeNumber(&text, fmt::format("/{}:", NameOf(type)));
    if (!index || !text.empty()) continue;
    name.type = type;
    name.index = *index;
    return name;
  }
  return std::nullopt;
}

}  // namespace

Result<DeviceName> ParseDeviceName(std::string_view name) {
  if (const std::optional<DeviceName> parsed = Parsed(name)) return *parsed;
  return InvalidArgument(fmt::format(
      "unknown device '{}'; devices are named like /cpu:0, /gpu:0 or /null:0, "
      "in a cluster like /job:worker/task:0/cpu:0",
      name));
}

namespace {

uint64_t NewIncarnation() {
  std::random_device random;
  uint64_t number = 0;
  while (number == 0) number = uint64_t{random()} << 32 | random();
  return number;
}

}  // namespace

Device::Device(DeviceName name, std::unique_ptr<Accelerator> accelerator)
    : name_(std::move(name)),
      incarnation_(NewIncarnation()),
      accelerator_(std::move(accelerator)),
      memory_(accelerator_.get()),
      variables_(std::make_shared<VariableStore>(memory_)) {}

Result<std::unique_ptr<Device>> Device::Open(const DeviceName& name,
                                             const DeviceOptions& options) {
  if (name.job != options.job ||
      (!name.job.empty() && name.task != options.task)) {
    return NotFound(
        fmt::format("device '{}' is another process's", name.ToString()));
  }
  if (name.type != DeviceType::kCuda) {
    auto device = std::make_unique<Device>(name);
    if (!options.container.empty()) {
      device->variables_ =
          VariableStore::Shared(options.container, name.ToString());
    } else if (options.share_variables) {
      device->variables_ =
          std::make_shared<VariableStore>(device->memory_, /*shared=*/true);
    }
    return device;
  }
  if (!options.container.empty() || options.share_variables) {
    return Unimplemented(fmt::format(
        "device '{}' runs one step at a time and keeps its variables in its "
        "own memory: it can share them neither between runs nor with other "
        "sessions",
        name.ToString()));
  }
  Result<std::unique_ptr<Accelerator>> accelerator =
      OpenAccelerator(name.type, name.index, options.share_accelerator);
  if (!accelerator.ok()) {
    return accelerator.status().WithContext(
        fmt::format("device '{}'", name.ToString()));
  }
  return std::unique_ptr<Device>(new Device(name, *std::move(accelerator)));
}

}  // namespace sluice
