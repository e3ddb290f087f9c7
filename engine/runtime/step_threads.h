// Threads that the parts of runs take turns on.
#ifndef SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_
#define SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/runtime/waker.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Purpose: a part that waits for another, here or in another process, gives its
// thread back and is resumed, by any of them, when it is woken or its deadline
// passes. So any number of runs may wait. Thread-safe; allocates where more
// parts wait than ever before.
class StepThreads {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A part, resumed by one thread at a time. Owned by the caller, who must not
  // touch it from Start until Ended is called, and must keep it until nobody
  // has it as a waker.
  class Part : public Waker {
   public:
    void Wake() final;

   protected:
    virtual ~Part() = default;
    // Goes on; false when it has given itself as a waker to what it waits for.
    // Called once more if it was woken before it returned.
    virtual bool Resume() = 0;
    // Called when Resume has returned true and the threads no longer use the
    // part.
    virtual void Ended() = 0;

   private:
    friend class StepThreads;
    enum class State : uint8_t {
      kOut,      // of the threads' hands
      kReady,    // to be resumed
      kRunning,  // is being resumed
      kWoken,    // the same, and was woken
      kParked,   // waits for Wake or its deadline
    };
    StepThreads* threads_ = nullptr;  // set by the first Start
    // Under their mutex.
    State state_ = State::kOut;
    TimePoint deadline_;
    Part* next_ = nullptr;  // of those that are ready
  };

  StepThreads() = default;
  // All parts must have ended.
  ~StepThreads();
  StepThreads(const StepThreads&) = delete;
  StepThreads& operator=(const StepThreads&) = delete;

  // Makes threads until there are so many. They never become fewer. Throws
  // std::system_error.
  void Reserve(int threads) EXCLUDES(mutex_);
  int size() const EXCLUDES(mutex_);
  // Resumes a part until it ends. Needs a thread, see Reserve: without one the
  // part never ends.
  void Start(Part& part, TimePoint deadline = TimePoint::max())
      EXCLUDES(mutex_);

 private:
  void Wake(Part& part) EXCLUDES(mutex_);
  void Loop() EXCLUDES(mutex_);
  Part* Next() REQUIRES(mutex_);
  void RunPart(Part& part) REQUIRES(mutex_);
  void MakeReady(Part& part) REQUIRES(mutex_);
  TimePoint ResumeLate() REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  Part* first_ready_ GUARDED_BY(mutex_) = nullptr;
  Part* last_ready_ GUARDED_BY(mutex_) = nullptr;
  std::vector<Part*> timed_ GUARDED_BY(mutex_);  // parked, with a deadline
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_STEP_THREADS_H_
