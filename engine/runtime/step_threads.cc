#include "engine/runtime/step_threads.h"

namespace sluice {

StepThreads::~StepThreads() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void StepThreads::Run(int parts, RangeFn part) {
  if (parts > 1) {
    while (static_cast<int>(threads_.size()) < parts - 1) {
      const int index = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back([this, index] { Loop(index); });
    }
    MutexLock lock(mutex_);
    part_ = &part;
    parts_ = parts;
    running_ = parts - 1;
    ++round_;
    changed_.NotifyAll();
  }
  part(0, 1);
  if (parts > 1) {
    MutexLock lock(mutex_);
    while (running_ > 0) changed_.Wait(mutex_);
    part_ = nullptr;
  }
}

void StepThreads::Loop(int index) {
  uint64_t seen = 0;
  while (true) {
    const RangeFn* part = nullptr;
    {
      MutexLock lock(mutex_);
      // A thread made during a step finds round_ ahead of what it has seen and
      // so takes part in that step.
      while (!stop_ && (round_ == seen || index >= parts_ || !part_)) {
        if (round_ != seen && (index >= parts_ || !part_)) seen = round_;
        changed_.Wait(mutex_);
      }
      if (stop_) return;
      seen = round_;
      part = part_;
    }
    (*part)(index, index + 1);
    MutexLock lock(mutex_);
    if (--running_ == 0) changed_.NotifyAll();
  }
}

}  // namespace sluice
