#include "engine/device.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>
#include <random>

#include "engine/thread_annotations.h"

namespace sluice {

std::string DeviceName::ToString() const {
  const std::string here = fmt::format("/{}:{}", NameOf(type), index);
  return job.empty() ? here : fmt::format("/job:{}/task:{}{}", job, task, here);
}

std::vector<std::string> HostsOf(std::vector<std::string> devices) {
  for (std::string& device : devices) {
    const auto name = ParseDeviceName(device);
    if (!name.ok() || name->type != DeviceType::kCuda) continue;
    device = DeviceName{DeviceType::kCpu, 0, name->job, name->task}.ToString();
  }
  return devices;
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

Status AtDevice(const Status& status, const DeviceName& name) {
  return status.WithContext(fmt::format("device '{}'", name.ToString()));
}

// What sessions of a container have of an accelerator.
struct SharedAccelerator {
  const std::unique_ptr<Accelerator> accelerator;
  DeviceMemory memory;
  VariableStore variables;

  explicit SharedAccelerator(std::unique_ptr<Accelerator> opened)
      : accelerator(std::move(opened)),
        memory(accelerator.get()),
        variables(memory, /*shared=*/true) {}
};

// By container and device. Those that nobody holds any more are forgotten when
// the next is asked for.
struct SharedAccelerators {
  Mutex mutex;
  std::map<std::pair<std::string, std::string>,
           std::weak_ptr<SharedAccelerator>>
      all GUARDED_BY(mutex);
};

Result<std::shared_ptr<SharedAccelerator>> OpenShared(
    const DeviceName& name, const DeviceOptions& options) {
  static auto* const known = new SharedAccelerators;  // outlives all sessions
  MutexLock lock(known->mutex);
  std::erase_if(known->all,
                [](const auto& entry) { return entry.second.expired(); });
  auto& place = known->all[{options.container, name.ToString()}];
  std::shared_ptr<SharedAccelerator> shared = place.lock();
  if (shared == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(
        std::unique_ptr<Accelerator> opened,
        OpenAccelerator(name.type, name.index, options.share_accelerator));
    shared = std::make_shared<SharedAccelerator>(std::move(opened));
    place = shared;
  }
  return shared;
}

}  // namespace

Device::Device(DeviceName name, std::shared_ptr<Accelerator> accelerator)
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
  const bool in_common = !options.container.empty();
  std::unique_ptr<Device> device;
  if (name.type != DeviceType::kCuda) {
    device = std::make_unique<Device>(name);
    if (in_common) {
      device->variables_ =
          VariableStore::Shared(options.container, name.ToString());
    }
  } else if (in_common) {
    auto shared = OpenShared(name, options);
    if (!shared.ok()) return AtDevice(shared.status(), name);
    device.reset(new Device(name, {*shared, (*shared)->accelerator.get()}));
    device->variables_ = {*shared, &(*shared)->variables};
  } else {
    auto opened =
        OpenAccelerator(name.type, name.index, options.share_accelerator);
    if (!opened.ok()) return AtDevice(opened.status(), name);
    device.reset(new Device(name, *std::move(opened)));
  }
  if (!in_common && options.share_variables) {
    device->variables_ =
        std::make_shared<VariableStore>(device->memory_, /*shared=*/true);
  }
  return device;
}

}  // namespace sluice
