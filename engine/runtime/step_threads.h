// Threads that run the parts of one step side by side.
#ifndef SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_
#define SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "engine/thread_annotations.h"
#include "engine/threads.h"

namespace sluice {

// Purpose: unlike a ParallelFor, parts may wait for each other, so each has a
// thread of its own. Made on first need, parked between steps. One Run at a
// time.
class StepThreads {
 public:
  StepThreads() = default;
  ~StepThreads();
  StepThreads(const StepThreads&) = delete;
  StepThreads& operator=(const StepThreads&) = delete;

  // Calls part(i, i + 1) for 0 <= i < parts, i = 0 on the calling thread, and
  // returns when all have returned. `part` must not throw.
  void Run(int parts, RangeFn part);

 private:
  void Loop(int index);

  std::vector<std::thread> threads_;  // thread t runs part t + 1
  Mutex mutex_;
  CondVar changed_;
  const RangeFn* part_ GUARDED_BY(mutex_) = nullptr;
  int parts_ GUARDED_BY(mutex_) = 0;
  uint64_t round_ GUARDED_BY(mutex_) = 0;
  int running_ GUARDED_BY(mutex_) = 0;
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_
