#include "engine/device_group.h"

#include <map>

#include "engine/module.h"
#include "engine/thread_annotations.h"

namespace sluice {
namespace {

struct Table {
  Mutex mutex;
  std::map<DeviceType, const DeviceGroups*> by_type GUARDED_BY(mutex);
};
Table& RegisteredGroups() {
  static Table* table = new Table;  // never destroyed: threads may use it
  return *table;
}

// Null where there are none.
const DeviceGroups* Known(DeviceType type) {
  Table& table = RegisteredGroups();
  MutexLock lock(table.mutex);
  const auto it = table.by_type.find(type);
  return it == table.by_type.end() ? nullptr : it->second;
}

}  // namespace

void RegisterDeviceGroups(DeviceType type, const DeviceGroups* groups) {
  Table& table = RegisteredGroups();
  MutexLock lock(table.mutex);
  table.by_type[type] = groups;
}

Result<const DeviceGroups*> FindDeviceGroups(DeviceType type) {
  const DeviceGroups* groups = Known(type);
  if (groups == nullptr) {
    SLUICE_RETURN_IF_ERROR(LoadModule(type));
    groups = Known(type);
  }
  if (groups != nullptr) return groups;
  return Unavailable(
      "libsluice_cuda.so was built without NCCL's headers: set "
      "NCCL_INCLUDE_DIR to where nccl.h is, and build it again");
}

}  // namespace sluice
