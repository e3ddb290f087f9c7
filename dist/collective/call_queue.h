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

// Runs collectives one after another in the order of their starts: on a thread
// of its own, where that is wanted, or on the thread that waits, if that comes
// first. Thread-safe. Allocates only where more calls are under way than ever
// before.
class CallQueue {
 public:
  // Smaller calls take less time than to wake a thread: they are left for the
  // wait, or for the next call that is larger.
  static constexpr int64_t kBesideBytes = 64 << 10;

  // `body` is called by one thread at a time. A call's name and data stay until
  // Wait.
  explicit CallQueue(std::function<Status(const CollectiveCall&)> body)
      : body_(std::move(body)) {}
  // Finishes what was started.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Appends a call. `beside`: this call and those before it are worth the
  // queue's thread. An error where no thread can be started.
  Status Start(const CollectiveCall& call, bool beside) EXCLUDES(mutex_);
  // Waits for the first call that was started with `data` and not yet waited
  // for, and returns its status.
  Status Wait(const void* data) EXCLUDES(mutex_);
  // Whether Wait would return at once; if not, the waker is woken when it
  // would. True where no thread can be started.
  bool IsOver(const void* data, Waker& waker) EXCLUDES(mutex_);
  // Waits until every started call is over: then what the body uses is the
  // caller's.
  void Finish() EXCLUDES(mutex_);
  // Finishes, and drops the results: no call is waited for any more.
  void Forget() EXCLUDES(mutex_);
  // Whether the calling thread is in the body.
  bool Within() const EXCLUDES(mutex_);

  // Held around a collective that the caller does at once, without Start: it
  // first waits for every started call. Does nothing within the body.
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
  // Seconds that turns and waits have kept their callers.
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
  // The calls in the order of their starts; cleared when all were waited for.
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
