// A thread for each of the devices that a process computes on side by side.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_DEVICE_THREADS_H_
#define SLUICE_MODELS_TRAIN_WORKERS_DEVICE_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/threads.h"

namespace sluice {

// The devices share the process's compute threads as evenly as possible, at
// least one for each; the calling thread computes nothing meanwhile. One thread
// calls.
class DeviceThreads {
 public:
  // `devices` by name. A single device, or one without a name, has the caller's
  // thread and all compute threads. Throws std::system_error if threads cannot
  // be made.
  explicit DeviceThreads(std::vector<std::string> devices = {""});
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  size_t size() const { return devices_.size(); }
  const std::string& name(size_t device) const { return devices_[device]; }

  // Calls `work` for each device, on its thread, and returns when all have
  // ended, also where some fail. Then throws the first one's error, in the
  // order of the devices, with the device's name.
  using Work = std::function<void(size_t device)>;
  void Run(const Work& work);

 private:
  void Loop(size_t device);
  void Stop();

  const std::vector<std::string> devices_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;

  Mutex mutex_;
  CondVar begun_, ended_;
  const Work* work_ GUARDED_BY(mutex_) = nullptr;
  uint64_t round_ GUARDED_BY(mutex_) = 0;  // of Run
  size_t left_ GUARDED_BY(mutex_) = 0;     // that are not done with it
  bool stop_ GUARDED_BY(mutex_) = false;
  std::vector<Status> ends_ GUARDED_BY(mutex_);  // by device

  std::vector<std::thread> threads_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_DEVICE_THREADS_H_
