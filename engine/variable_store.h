// Variables of a device, and containers: stores of them that several sessions
// of a process share by name.
#ifndef SLUICE_ENGINE_VARIABLE_STORE_H_
#define SLUICE_ENGINE_VARIABLE_STORE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device_memory.h"
#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// A named tensor that outlives steps. Its buffer never moves, so Plans point
// into it. `value` is in its device's memory and is read and written through
// the device.
//
// To use the value of a variable a thread must hold the session's one lane if
// the store is not shared; if it is, `mutex`, for reading or for writing. An
// executor takes it for each instruction that reads or updates the variable and
// for no longer. On an accelerator it is not needed: all sessions that share
// the variable add to one queue, an instruction at a time. For sessions that
// share a variable this means:
// - An instruction reads the value that one write left, whole; an update
//   (AssignAdd, an optimizer's) reads and writes it as one, so that none is
//   lost. An instruction on several variables sees and leaves all of them so.
// - Between two instructions of a step others may write: a step that reads a
//   variable twice may read two values, and Assign(v, v + 1) is a read and a
//   write, between which an update is lost.
// - A tensor that another device receives is the value of one point in time.
struct Variable {
  std::string name;
  Tensor value;
  std::atomic<bool> initialized = false;
  SharedMutex mutex;
};

// A device's variables by name. Thread-safe; pointers stay valid as long as the
// store.
class VariableStore {
 public:
  explicit VariableStore(const DeviceMemory& memory, bool shared = false)
      : memory_(memory), shared_(shared) {}
  // The variables that the sessions of this process with the same `container`
  // and `device` ("/cpu:0") share, in the host's memory. They are destroyed
  // with the last pointer to the store.
  static std::shared_ptr<VariableStore> Shared(const std::string& container,
                                               const std::string& device);

  // The variable of that name, made when there is none. An existing one of
  // another dtype or shape is an error saying both.
  Result<Variable*> Declare(const std::string& name, const TensorType& type);
  // The variable of that name; null when there is none.
  Variable* Find(std::string_view name) const;
  std::vector<Variable*> All() const;  // by name
  size_t bytes() const;
  // Whether others may use the variables at the same time.
  bool shared() const { return shared_; }

 private:
  const DeviceMemory& memory_;
  const bool shared_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Variable>, std::less<>> variables_
      GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_VARIABLE_STORE_H_
