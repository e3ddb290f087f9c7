// All-reduces that go on beside what their process computes.
#ifndef SLUICE_DIST_COLLECTIVE_REDUCE_QUEUE_H_
#define SLUICE_DIST_COLLECTIVE_REDUCE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "engine/reduction.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// Performs one after the other in the order of their starts: by a thread of its
// own, where that is wanted, or by whoever waits, if that comes first.
// Thread-safe. Allocates where more are under way than ever before.
class ReduceQueue {
 public:
  // What is to be reduced; `name` and the data stay until Wait.
  struct Item {
    std::string_view name;
    DType dtype = DType::kFloat32;
    void* data = nullptr;
    int64_t count = 0;  // elements
    Reduction how = Reduction::kSum;
  };

  // `reduce` is called by one thread at a time.
  explicit ReduceQueue(std::function<Status(const Item&)> reduce)
      : reduce_(std::move(reduce)) {}
  // Finishes what was started.
  ~ReduceQueue();
  ReduceQueue(const ReduceQueue&) = delete;
  ReduceQueue& operator=(const ReduceQueue&) = delete;

  // `beside`: this one and those before it are worth the thread. An error where
  // there is none to be had.
  Status Start(const Item& item, bool beside) EXCLUDES(mutex_);
  // Of the one that was started with that data, and not waited for.
  Status Wait(const void* data) EXCLUDES(mutex_);
  // Whether Wait would return at once; else the waker is woken then. True where
  // there is no thread to be had.
  bool Ready(const void* data, Waker& waker) EXCLUDES(mutex_);
  // Until all that was started is over: what `reduce` uses is the caller's.
  void Finish() EXCLUDES(mutex_);
  // The same, and nobody waits for any of it any more.
  void Forget() EXCLUDES(mutex_);

 private:
  struct Entry {
    Item item;
    bool over = false, waited = false;
    Status status = {};
    Waker* waker = nullptr;
  };
  void Loop() EXCLUDES(mutex_);
  void Next() REQUIRES(mutex_);
  // Throws std::system_error.
  void CallThread() REQUIRES(mutex_);
  Entry* Find(const void* data) REQUIRES(mutex_);

  const std::function<Status(const Item&)> reduce_;
  Mutex mutex_;
  CondVar over_;    // one is
  CondVar wanted_;  // the thread is
  // In the order of their starts; forgotten when all were waited for.
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;       // the first that nobody has begun
  size_t waited_ GUARDED_BY(mutex_) = 0;     // how many were waited for
  bool running_ GUARDED_BY(mutex_) = false;  // somebody does one
  bool called_ GUARDED_BY(mutex_) = false;
  bool end_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_REDUCE_QUEUE_H_
