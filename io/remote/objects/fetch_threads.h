// Threads that wait for servers.
#ifndef SLUICE_IO_REMOTE_OBJECTS_FETCH_THREADS_H_
#define SLUICE_IO_REMOTE_OBJECTS_FETCH_THREADS_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "engine/thread_annotations.h"

namespace sluice::remote {

// Runs tasks in the order they come, so many at a time; they must not wait for
// one another. Thread-safe.
class FetchThreads {
 public:
  explicit FetchThreads(int threads) : most_(threads) {}
  // Waits for the tasks that run; those that wait are dropped.
  ~FetchThreads();
  FetchThreads(const FetchThreads&) = delete;
  FetchThreads& operator=(const FetchThreads&) = delete;

  // `task` must not throw.
  void Start(std::function<void()> task);

 private:
  void Work();

  const int most_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);  // made when needed
  int idle_ GUARDED_BY(mutex_) = 0;
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_OBJECTS_FETCH_THREADS_H_
