// Collectives that go on beside what their process computes.
#ifndef SLUICE_DIST_COLLECTIVE_CALL_QUEUE_H_
#define SLUICE_DIST_COLLECTIVE_CALL_QUEUE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/collective.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// Does one after the other in the order of their starts: by a thread of its
// own, where that is wanted, or by whoever waits, if that comes first.
// Thread-safe. Allocates where more are under way than ever before.
class CallQueue {
 public:
  // What takes less time than to wake a thread is left for the wait, or for the
  // next that is larger.
  static constexpr int64_t kBesideBytes = 64 << 10;

  // `body` is called by one thread at a time. A call's name and data stay until
  // Wait.
  explicit CallQueue(std::function<Status(const CollectiveCall&)> body)
      : body_(std::move(body)) {}
  // Finishes what was started.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // `beside`: this one and those before it are worth the thread. An error where
  // there is none to be had.
  Status Start(const CollectiveCall& call, bool beside) EXCLUDES(mutex_);
  // Of the first that was started with that data, and not waited for.
  Status Wait(const void* data) EXCLUDES(mutex_);
  // Whether Wait would return at once; else the waker is woken then. True where
  // there is no thread to be had.
  bool IsOver(const void* data, Waker& waker) EXCLUDES(mutex_);
  // Until all that was started is over: what the body uses is the caller's.
  void Finish() EXCLUDES(mutex_);
  // The same, and nobody waits for any of it any more.
  void Forget() EXCLUDES(mutex_);
  // Whether it is the body that asks.
  bool Within() const EXCLUDES(mutex_);

  // While a caller is in what is not started but done at once, which comes
  // after all that was started. Where it is the body it is nothing.
  class Turn {
   public:
    explicit Turn(CallQueue& queue);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    CallQueue* const queue_;  // null: within
    const std::chrono::steady_clock::time_point begin_;
  };
  // For how long turns and waits have kept their callers.
  double seconds() const { return seconds_; }

 private:
  struct Entry {
    CollectiveCall call;
    bool over = false, waited = false;
    Status status = {};
    Waker* waker = nullptr;
  };
  void Loop() EXCLUDES(mutex_);
  void Next() REQUIRES(mutex_);
  // Throws std::system_error.
  void CallThread() REQUIRES(mutex_);
  Entry* Find(const void* data) REQUIRES(mutex_);

  const std::function<Status(const CollectiveCall&)> body_;
  mutable Mutex mutex_;
  CondVar over_;    // one is
  CondVar wanted_;  // the thread is
  // In the order of their starts; forgotten when all were waited for.
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;       // the first that nobody has begun
  size_t waited_ GUARDED_BY(mutex_) = 0;     // how many were waited for
  bool running_ GUARDED_BY(mutex_) = false;  // somebody does one
  std::thread::id runner_ GUARDED_BY(mutex_);  // who
  bool called_ GUARDED_BY(mutex_) = false;
  bool end_ GUARDED_BY(mutex_) = false;
  std::atomic<double> seconds_{0};
  std::thread thread_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_CALL_QUEUE_H_
