#include "models/train/workers/device_threads.h"

#include <algorithm>
#include <utility>

#include "engine/catch_errors.h"
#include "engine/runtime/subtrees.h"

namespace sluice {

DeviceThreads::DeviceThreads(std::vector<std::string> devices)
    : devices_(std::move(devices)), ends_(devices_.size()) {
  const size_t count = devices_.size();
  if (count == 1) return;
  const int all = ComputeThreads().threads();
  for (size_t i = 0; i < count; ++i) {
    const auto share =
        LeavesOf(all, static_cast<int64_t>(i), static_cast<int64_t>(count));
    pools_.push_back(std::make_unique<ThreadPool>(
        std::max(1, static_cast<int>(share.size()))));
  }
  try {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] { Loop(i); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

DeviceThreads::~DeviceThreads() {
  Stop();
}

void DeviceThreads::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    begun_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void DeviceThreads::Run(const Work& work) {
  if (devices_.size() == 1) return work(0);
  std::vector<Status> ends;
  {
    MutexLock lock(mutex_);
    work_ = &work;
    left_ = devices_.size();
    ++round_;
    begun_.NotifyAll();
    while (left_ > 0) ended_.Wait(mutex_);
    ends = ends_;
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    ThrowIfError(ends[i].ok() ? ends[i] : ends[i].WithContext(devices_[i]));
  }
}

void DeviceThreads::Loop(size_t device) {
  const ScopedComputeThreads own(*pools_[device]);
  uint64_t done = 0;
  while (true) {
    const Work* work = nullptr;
    {
      MutexLock lock(mutex_);
      while (round_ == done && !stop_) begun_.Wait(mutex_);
      if (stop_) return;
      done = round_;
      work = work_;
    }
    Status end = CatchErrors([&] { (*work)(device); });
    MutexLock lock(mutex_);
    ends_[device] = std::move(end);
    if (--left_ == 0) ended_.NotifyAll();
  }
}

}  // namespace sluice
