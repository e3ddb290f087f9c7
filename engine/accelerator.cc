#include "engine/accelerator.h"

#include <fmt/format.h>

#include <map>

#include "engine/module.h"
#include "engine/thread_annotations.h"

namespace sluice {
namespace {

struct Openers {
  Mutex mutex;
  std::map<DeviceType, AcceleratorOpener> by_type GUARDED_BY(mutex);
};
Openers& RegisteredOpeners() {
  static Openers* openers = new Openers;  // never destroyed: threads may use it
  return *openers;
}

AcceleratorOpener FindOpener(DeviceType type) {
  Openers& openers = RegisteredOpeners();
  MutexLock lock(openers.mutex);
  auto it = openers.by_type.find(type);
  return it == openers.by_type.end() ? nullptr : it->second;
}

}  // namespace

void RegisterAccelerators(DeviceType type, AcceleratorOpener opener) {
  Openers& openers = RegisteredOpeners();
  MutexLock lock(openers.mutex);
  openers.by_type[type] = std::move(opener);
}

Result<std::unique_ptr<Accelerator>> OpenAccelerator(DeviceType type, int index,
                                                     bool shared) {
  AcceleratorOpener open = FindOpener(type);
  if (open == nullptr) {
    SLUICE_RETURN_IF_ERROR(LoadModule(type));
    open = FindOpener(type);
  }
  SLUICE_CHECK(open != nullptr);  // a module that loads has registered
  return open(index, shared);
}

}  // namespace sluice
