// A device: where its tensors live, its variables and the memory its Plans
// share.
#ifndef SLUICE_ENGINE_DEVICE_H_
#define SLUICE_ENGINE_DEVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/accelerator.h"
#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"

namespace sluice {

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

// A named tensor that outlives steps. Its buffer never moves, so Plans point
// into it. `value` is in its device's memory: the owner of the session's run
// lock reads and writes it through the device.
struct Variable {
  std::string name;
  Tensor value;
  bool initialized = false;
  // Counts writes from outside Plans, so that state derived from the value can
  // be rebuilt.
  uint64_t version = 0;
};

// Memory for tensors: the host's, or an accelerator's.
class DeviceMemory {
 public:
  // Null: the host's. Borrowed; its rule about threads holds for calls here.
  explicit DeviceMemory(Accelerator* accelerator) : accelerator_(accelerator) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Accelerator* accelerator() const { return accelerator_; }

  // Resource exhaustion says how much was wanted.
  Result<std::shared_ptr<void>> Allocate(size_t bytes) const;
  Result<Tensor> Allocate(const TensorType& type) const;
  // A tensor here with the value of one on the host, and the other way round.
  // On the host the first shares the bytes, the second is a copy.
  Result<Tensor> Upload(const Tensor& host) const;
  Result<Tensor> Download(const Tensor& here) const;
  // Overwrites a tensor here of the same type.
  Status Store(const Tensor& host, Tensor& here) const;

 private:
  // Does `copy(pinned, offset, bytes)` with pieces of a tensor of `bytes`, in
  // turn, all through one piece of pinned memory.
  Status InPieces(size_t bytes,
                  const std::function<Status(char* pinned, size_t offset,
                                             size_t bytes)>& copy) const;

  Accelerator* accelerator_;
  // Made when first needed and kept: making it takes longer than most copies.
  mutable std::shared_ptr<void> pinned_;
};

// A device's variables by name. Looking up and declaring is thread-safe;
// pointers stay valid as long as the store.
class VariableStore {
 public:
  explicit VariableStore(const DeviceMemory& memory) : memory_(memory) {}
  // The variable of that name, made when there is none. An existing one of
  // another dtype or shape is an error saying both.
  Result<Variable*> Declare(const std::string& name, const TensorType& type);
  // Null when there is none.
  Variable* Find(std::string_view name) const;
  std::vector<Variable*> All() const;  // by name
  size_t bytes() const;

 private:
  const DeviceMemory& memory_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Variable>, std::less<>> variables_
      GUARDED_BY(mutex_);
};

// One block of memory for the intermediate values of a device's Plans, as large
// as the largest of them. Not thread-safe.
class Arena {
 public:
  explicit Arena(const DeviceMemory& memory) : memory_(memory) {}
  // Grows to at least `bytes`; earlier pointers are then invalid and
  // generation() changes. Resource exhaustion says how much was wanted.
  Status Reserve(size_t bytes);
  char* data() const { return static_cast<char*>(buffer_.get()); }
  size_t bytes() const { return bytes_; }
  uint64_t generation() const { return generation_; }

 private:
  const DeviceMemory& memory_;
  std::shared_ptr<void> buffer_;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;
};

class Device {
 public:
  // Opens the accelerator of types that have one; `shared` as in
  // OpenAccelerator. Errors name the device; another process's is one.
  static Result<std::unique_ptr<Device>> Open(const DeviceName& name,
                                              bool shared = false);
  // One in the host's memory.
  explicit Device(DeviceName name) : Device(std::move(name), nullptr) {}

  const DeviceName& name() const { return name_; }
  // Another one for each device that is opened, in any process; never 0.
  uint64_t incarnation() const { return incarnation_; }
  DeviceType type() const { return name_.type; }
  // Null where tensors are in the host's memory.
  Accelerator* accelerator() const { return accelerator_.get(); }
  const DeviceMemory& memory() const { return memory_; }
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }
  Arena& arena() { return arena_; }
  const Arena& arena() const { return arena_; }

 private:
  Device(DeviceName name, std::unique_ptr<Accelerator> accelerator);

  DeviceName name_;
  const uint64_t incarnation_;
  std::unique_ptr<Accelerator> accelerator_;  // outlives what it allocated
  DeviceMemory memory_;
  VariableStore variables_;
  Arena arena_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_DEVICE_H_
