// Data-parallel loops over a process-wide pool of compute threads.
//
// Work is cut into chunks by its size and grain only, never by the number of
// threads, and each chunk is computed by one thread. A loop whose chunks
// write to places of their own therefore gives the same bits for any number
// of threads. Which thread computes which chunk is not fixed.
#ifndef SLUICE_ENGINE_THREADS_H_
#define SLUICE_ENGINE_THREADS_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// While it lives, the calling thread treats subnormal numbers as zero, on
// input and output: arithmetic on them can be a hundred times slower. Workers
// always run this way, and ParallelFor sets it for its caller.
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals();
  ~ScopedFlushDenormals();
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  uint64_t saved_;
};

// While it lives, the calling thread takes subnormal numbers for what they are,
// also where they are flushed otherwise: for what must not change them.
class ScopedKeepDenormals {
 public:
  ScopedKeepDenormals();
  ~ScopedKeepDenormals();
  ScopedKeepDenormals(const ScopedKeepDenormals&) = delete;
  ScopedKeepDenormals& operator=(const ScopedKeepDenormals&) = delete;

 private:
  uint64_t saved_;
};

// A borrowed reference to a callable (int64_t begin, int64_t end): no
// allocation, valid as long as the callable it was made from.
class RangeFn {
 public:
  template <typename F, typename = std::enable_if_t<
                            !std::is_same_v<std::decay_t<F>, RangeFn>>>
  RangeFn(F&& fn)  // NOLINT: implicit, so that a lambda can be passed
      : object_(const_cast<void*>(static_cast<const void*>(&fn))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const {
    call_(object_, begin, end);
  }

 private:
  void* object_;
  void (*call_)(void* object, int64_t begin, int64_t end);
};

// Purpose: threads that share one loop at a time with the thread that calls
// ParallelFor; a pool of n threads has n - 1 workers.
//
// Threads: any thread may call ParallelFor. One region is open at a time: a
// call made while another thread's region is open, or from inside a chunk,
// runs all its chunks in order in the calling thread. So give one thread the
// parallel work; the others stay correct, only serial.
//
// Idle workers spin for some tens of microseconds, in which a new region costs
// them about 0.2 us to notice, then sleep; waking one takes about 10 us.
class ThreadPool {
 public:
  // threads >= 1, the caller included; 0 takes one per core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(begin, end) over [0, n) in chunks of `grain` (the last one may be
  // shorter) and returns when all have run. n <= grain, or a pool of one
  // thread, costs no synchronisation. What fn throws, on whichever thread, is
  // thrown here; other chunks may have run by then.
  void ParallelFor(int64_t n, int64_t grain, RangeFn fn);

  // Changes the number of threads as in the constructor. No region may be
  // open.
  void Resize(int threads);

 private:
  struct Region {
    RangeFn fn;
    int64_t n;
    int64_t grain;
    int64_t chunks;
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // of the first chunk that failed
  };

  void Start();
  void Stop();
  void WorkerLoop();
  // Publishes a region and wakes workers for it.
  void OpenRegion(Region& region);
  // Runs chunks of the open region until none is left to claim.
  void RunChunks();
  // Returns once a region has chunks to claim; false when the pool stops.
  bool AwaitWork();
  // Returns once all chunks of the region are computed.
  void AwaitDone();

  int threads_ = 1;
  bool spin_ = true;
  std::vector<std::thread> workers_;

  std::atomic<bool> open_{false};  // some thread is inside a parallel region
  // Written by the opener before ticket_ is published, read by whoever has
  // claimed a chunk: the region cannot end before that chunk has.
  Region* region_ = nullptr;
  // Upper half: number of the region; lower half: chunks left to claim.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};  // chunks not yet computed

  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> opener_sleeps_{false};
  std::atomic<bool> stop_{false};
  Mutex mutex_;  // held only to sleep and to wake
  CondVar work_;
  CondVar done_;
};

// The process's compute threads, made on first use with one thread per core; or
// those that the calling thread has by itself (ScopedComputeThreads).
ThreadPool& ComputeThreads();

// While it lives, the calling thread's compute threads are those of `pool`,
// which must live as long: for threads that compute side by side, each with its
// part of the cores.
class ScopedComputeThreads {
 public:
  explicit ScopedComputeThreads(ThreadPool& pool);
  ~ScopedComputeThreads();
  ScopedComputeThreads(const ScopedComputeThreads&) = delete;
  ScopedComputeThreads& operator=(const ScopedComputeThreads&) = delete;

 private:
  ThreadPool* saved_;
};

// How many cores the calling thread, and so the process, may use (CpusOf).
int AvailableCores();

// Sets the number of the process's compute threads; n = 0: one per core. No
// ParallelFor may be running.
void SetComputeThreads(int n);

inline void ParallelFor(int64_t n, int64_t grain, RangeFn fn) {
  ComputeThreads().ParallelFor(n, grain, fn);
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_THREADS_H_
