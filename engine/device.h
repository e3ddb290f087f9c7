// A device: its variables and the memory its Plans share.
#ifndef SLUICE_ENGINE_DEVICE_H_
#define SLUICE_ENGINE_DEVICE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"

namespace sluice {

// "/cpu:1" is type cpu, index 1.
struct DeviceName {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  std::string ToString() const;
};
// Errors say what names look like and which types exist.
Result<DeviceName> ParseDeviceName(std::string_view name);

// A named tensor that outlives steps. Its buffer never moves, so Plans point
// into it. The owner of the session's run lock may read and write `value`.
struct Variable {
  std::string name;
  Tensor value;
  bool initialized = false;
  // Counts writes from outside Plans, so that state derived from the value can
  // be rebuilt.
  uint64_t version = 0;
};

// A device's variables by name. Looking up and declaring is thread-safe;
// pointers stay valid as long as the store.
class VariableStore {
 public:
  // The variable of that name, made when there is none. An existing one of
  // another dtype or shape is an error saying both.
  Result<Variable*> Declare(const std::string& name, const TensorType& type);
  // Null when there is none.
  Variable* Find(std::string_view name) const;
  std::vector<Variable*> All() const;  // by name
  size_t bytes() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Variable>, std::less<>> variables_
      GUARDED_BY(mutex_);
};

// One block of memory for the intermediate values of a device's Plans, as large
// as the largest of them. Not thread-safe.
class Arena {
 public:
  // Grows to at least `bytes`; earlier pointers are then invalid and
  // generation() changes. Resource exhaustion says how much was wanted.
  Status Reserve(size_t bytes);
  char* data() const { return static_cast<char*>(buffer_.get()); }
  size_t bytes() const { return bytes_; }
  uint64_t generation() const { return generation_; }

 private:
  std::shared_ptr<void> buffer_;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;
};

class Device {
 public:
  explicit Device(DeviceName name) : name_(name) {}
  const DeviceName& name() const { return name_; }
  DeviceType type() const { return name_.type; }
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }
  Arena& arena() { return arena_; }
  const Arena& arena() const { return arena_; }

 private:
  DeviceName name_;
  VariableStore variables_;
  Arena arena_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_DEVICE_H_
