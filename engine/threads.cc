#include "engine/threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/affinity.h"
#include "engine/pause.h"
#include "engine/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {
namespace {

// How long a thread with nothing to do spins before it sleeps.
constexpr std::chrono::microseconds kSpin{50};

constexpr uint64_t kChunksMask = 0xffffffffu;

// Set in workers, and in the opener while its region is open.
thread_local bool inside_region = false;

// ScopedComputeThreads'; null: the process's.
thread_local ThreadPool* own_threads = nullptr;

#if defined(__x86_64__)
constexpr uint64_t kFlushBits = 0x8040;  // MXCSR: FTZ and DAZ
uint64_t FloatControl() {
  return _mm_getcsr();
}
void SetFloatControl(uint64_t v) {
  _mm_setcsr(static_cast<unsigned>(v));
}
#elif defined(__aarch64__)
constexpr uint64_t kFlushBits = uint64_t{1} << 24;  // FPCR.FZ
uint64_t FloatControl() {
  uint64_t v;
  asm volatile("mrs %0, fpcr" : "=r"(v));
  return v;
}
void SetFloatControl(uint64_t v) {
  asm volatile("msr fpcr, %0" : : "r"(v));
}
#else
constexpr uint64_t kFlushBits = 0;
uint64_t FloatControl() {
  return 0;
}
void SetFloatControl(uint64_t) {}
#endif

// Spins until ready() or kSpin has passed; true if ready.
template <typename Ready>
bool SpinUntil(const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace

int AvailableCores() {
  // hardware_concurrency counts those of the machine.
  const std::vector<int> cpus = CpusOf(0);
  if (!cpus.empty()) return static_cast<int>(cpus.size());
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ScopedFlushDenormals::ScopedFlushDenormals() : saved_(FloatControl()) {
  if ((saved_ & kFlushBits) != kFlushBits) {
    SetFloatControl(saved_ | kFlushBits);
  }
}

ScopedFlushDenormals::~ScopedFlushDenormals() {
  if ((saved_ & kFlushBits) != kFlushBits) SetFloatControl(saved_);
}

ScopedKeepDenormals::ScopedKeepDenormals() : saved_(FloatControl()) {
  if ((saved_ & kFlushBits) != 0) SetFloatControl(saved_ & ~kFlushBits);
}

ScopedKeepDenormals::~ScopedKeepDenormals() {
  if ((saved_ & kFlushBits) != 0) SetFloatControl(saved_);
}

ThreadPool::ThreadPool(int threads) {
  Resize(threads);
}

ThreadPool::~ThreadPool() {
  Stop();
}

void ThreadPool::Resize(int threads) {
  SLUICE_CHECK(threads >= 0);
  SLUICE_CHECK(!open_.exchange(true));
  if (threads == 0) threads = AvailableCores();
  if (threads != threads_) {
    Stop();
    threads_ = threads;
    Start();
  }
  open_ = false;
}

void ThreadPool::Start() {
  stop_ = false;
  // Spinning would take the core from the thread that has the work.
  spin_ = threads_ <= AvailableCores();
  try {
    for (int i = 1; i < threads_; ++i) {
      workers_.emplace_back([this] { WorkerLoop(); });
    }
  } catch (...) {
    // Those that run wait for work, and must not outlive what they wait on.
    Stop();
    threads_ = 1;
    open_ = false;
    throw;
  }
}

void ThreadPool::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    work_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, RangeFn fn) {
  if (n <= 0) return;
  const ScopedFlushDenormals flush;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (n - 1) / grain + 1;
  if (chunks == 1 || threads_ == 1 || inside_region ||
      chunks > static_cast<int64_t>(kChunksMask) ||
      open_.exchange(true, std::memory_order_acquire)) {
    for (int64_t i = 0; i < chunks; ++i) {
      fn(i * grain, std::min(n, (i + 1) * grain));
    }
    return;
  }
  inside_region = true;
  Region region{fn, n, grain, chunks};
  OpenRegion(region);
  RunChunks();
  AwaitDone();
  inside_region = false;
  open_.store(false, std::memory_order_release);
  if (region.failed.load(std::memory_order_relaxed)) {
    std::rethrow_exception(region.error);
  }
}

void ThreadPool::OpenRegion(Region& region) {
  region_ = &region;
  unfinished_.store(region.chunks, std::memory_order_relaxed);
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  // Sequentially consistent against AwaitWork's count: either that worker
  // sees this ticket before it sleeps, or it is seen sleeping here.
  ticket_.store((number << 32) | static_cast<uint64_t>(region.chunks));
  const int64_t sleepers = sleepers_.load();
  if (sleepers > 0) {
    MutexLock lock(mutex_);
    // The opener takes a chunk itself.
    for (int64_t i = std::min(sleepers, region.chunks - 1); i > 0; --i) {
      work_.NotifyOne();
    }
  }
}

void ThreadPool::RunChunks() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & kChunksMask) != 0) {
    // Only a claim pins the region, so nothing of it is read before.
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1,
                                       std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    Region& region = *region_;
    const int64_t chunk =
        region.chunks - static_cast<int64_t>(ticket & kChunksMask);
    try {
      region.fn(chunk * region.grain,
                std::min(region.n, (chunk + 1) * region.grain));
    } catch (...) {
      if (!region.failed.exchange(true)) {
        region.error = std::current_exception();
      }
    }
    // The opener may return, and its Region vanish, from here on. The count
    // is sequentially consistent against AwaitDone as in OpenRegion.
    if (unfinished_.fetch_sub(1) == 1 && opener_sleeps_.load()) {
      MutexLock lock(mutex_);
      done_.NotifyOne();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::AwaitDone() {
  const auto done = [this] {
    return unfinished_.load(std::memory_order_acquire) == 0;
  };
  if (done() || (spin_ && SpinUntil(done))) return;
  MutexLock lock(mutex_);
  opener_sleeps_.store(true);
  while (unfinished_.load() != 0) done_.Wait(mutex_);
  opener_sleeps_.store(false);
}

void ThreadPool::WorkerLoop() {
  inside_region = true;
  const ScopedFlushDenormals flush;
  while (AwaitWork()) RunChunks();
}

bool ThreadPool::AwaitWork() {
  const auto work = [this] {
    return (ticket_.load(std::memory_order_acquire) & kChunksMask) != 0 ||
           stop_.load(std::memory_order_relaxed);
  };
  if (!spin_ || !SpinUntil(work)) {
    MutexLock lock(mutex_);
    sleepers_.fetch_add(1);
    while ((ticket_.load() & kChunksMask) == 0 && !stop_) work_.Wait(mutex_);
    sleepers_.fetch_sub(1);
  }
  return !stop_.load(std::memory_order_relaxed);
}

namespace {

ThreadPool& ProcessThreads() {
  // Never destroyed: static destructors of others may still compute.
  static ThreadPool* const pool = new ThreadPool;
  return *pool;
}

}  // namespace

ThreadPool& ComputeThreads() {
  return own_threads != nullptr ? *own_threads : ProcessThreads();
}

void SetComputeThreads(int n) {
  ProcessThreads().Resize(n);
}

ScopedComputeThreads::ScopedComputeThreads(ThreadPool& pool)
    : saved_(std::exchange(own_threads, &pool)) {}

ScopedComputeThreads::~ScopedComputeThreads() {
  own_threads = saved_;
}

}  // namespace sluice
