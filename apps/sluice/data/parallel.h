// Much work of one kind on several threads, and how far it is.
#ifndef SLUICE_APPS_SLUICE_DATA_PARALLEL_H_
#define SLUICE_APPS_SLUICE_DATA_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::tool {

// Calls work(i) for every i in [0, n) on `threads` threads, at least 1; on
// fewer where the system has no more. After an error no more are begun. Returns
// that of the lowest i, which is the same one for any number of threads:
// numbers are given out in order, and what was begun is ended. What `work`
// throws is an error like any other.
Status ForEach(int64_t n, int threads,
               const std::function<Status(int64_t)>& work);

// While it lives, says on stderr every ten seconds how much is done; nothing
// where the system has no thread for it.
class Progress {
 public:
  // "sluice data: 1200 of 50000 pictures"
  Progress(int64_t total, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Thread-safe.
  void Add(int64_t n) { done_ += n; }

 private:
  void Run();

  const int64_t total_;
  const std::string what_;
  std::atomic<int64_t> done_ = 0;

  Mutex mutex_;
  CondVar ended_;
  bool end_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_PARALLEL_H_
