// How long something was being worked on, by any number of threads at once.
#ifndef SLUICE_ENGINE_RUNTIME_BUSY_CLOCK_H_
#define SLUICE_ENGINE_RUNTIME_BUSY_CLOCK_H_

#include <chrono>

#include "engine/thread_annotations.h"

namespace sluice {

// Thread-safe.
class BusyClock {
 public:
  // While one of these lives, somebody works.
  class Work {
   public:
    explicit Work(BusyClock& clock) : clock_(clock) { clock_.Begin(); }
    ~Work() { clock_.End(); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    BusyClock& clock_;
  };

  // The seconds for which somebody has worked; work under way counts when it
  // has ended.
  double seconds() const {
    MutexLock lock(mutex_);
    return std::chrono::duration<double>(total_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Begin() {
    MutexLock lock(mutex_);
    if (workers_++ == 0) since_ = Clock::now();
  }
  void End() {
    MutexLock lock(mutex_);
    if (--workers_ == 0) total_ += Clock::now() - since_;
  }

  mutable Mutex mutex_;
  int workers_ GUARDED_BY(mutex_) = 0;
  Clock::time_point since_ GUARDED_BY(mutex_);
  Clock::duration total_ GUARDED_BY(mutex_) = Clock::duration::zero();
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_BUSY_CLOCK_H_
