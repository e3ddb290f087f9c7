// A device: where its tensors live, and its variables.
#ifndef SLUICE_ENGINE_DEVICE_H_
#define SLUICE_ENGINE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/accelerator.h"
#include "engine/device_memory.h"
#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/variable_store.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// "/cpu:1" is this process's, type cpu, index 1. Of a process of a cluster it
// is "/job:worker/task:3/cpu:1".
struct DeviceName {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  std::string job = {};  // empty: this process
  int task = 0;
  std::string ToString() const;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};
// Errors say what names look like and which types exist.
Result<DeviceName> ParseDeviceName(std::string_view name);
// Replaces each GPU by the first CPU of its process; others stay as they are.
std::vector<std::string> HostsOf(std::vector<std::string> devices);

struct DeviceOptions {
  bool share_accelerator = false;  // as in OpenAccelerator
  // The container that has the device's variables (VariableStore::Shared);
  // empty: the device has them.
  std::string container = {};
  // Whether steps that run at the same time use the device's variables, which
  // are then locked as those of a container are.
  bool share_variables = false;
  // This process's job and task in a cluster: device names with these are its
  // own.
  std::string job = {};
  int task = 0;
};

class Device {
 public:
  // Opens the accelerator of types that have one; in a container it is the one
  // that others there have opened, since the order of what shares variables is
  // that of its queue. Errors name the device: another process's is one.
  static Result<std::unique_ptr<Device>> Open(
      const DeviceName& name, const DeviceOptions& options = {});
  // A device in the host's memory.
  explicit Device(DeviceName name) : Device(std::move(name), nullptr) {}

  const DeviceName& name() const { return name_; }
  // A number that differs for each device opened in any process; never 0.
  uint64_t incarnation() const { return incarnation_; }
  DeviceType type() const { return name_.type; }
  // Null if tensors are in the host's memory.
  Accelerator* accelerator() const { return accelerator_.get(); }
  const DeviceMemory& memory() const { return memory_; }
  VariableStore& variables() { return *variables_; }
  const VariableStore& variables() const { return *variables_; }

 private:
  Device(DeviceName name, std::shared_ptr<Accelerator> accelerator);

  DeviceName name_;
  const uint64_t incarnation_;
  std::shared_ptr<Accelerator> accelerator_;  // outlives what it allocated
  DeviceMemory memory_;
  std::shared_ptr<VariableStore> variables_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_DEVICE_H_
