// The mutex that calls of the emulated runtime hold.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_CALL_MUTEX_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_CALL_MUTEX_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace sluice::cuda::emulation {

// A thread may hold it several times, and let others have it while it waits for
// what they do.
class CallMutex {
 public:
  void lock() {
    std::unique_lock held(mutex_);
    if (owner_ != std::this_thread::get_id()) Take(held, 0);
    ++depth_;
  }
  void unlock() {
    const std::lock_guard held(mutex_);
    if (--depth_ == 0) Give();
  }
  // Of who holds it, however often: until `ready`, which is asked with it held,
  // now and after each Wake.
  template <typename Ready>
  void Await(const Ready& ready) {
    while (!ready()) {
      std::unique_lock held(mutex_);
      const int depth = std::exchange(depth_, 0);
      Give();
      woken_.wait(held);
      Take(held, depth);
    }
  }
  void Wake() { woken_.notify_all(); }

 private:
  void Take(std::unique_lock<std::mutex>& held, int depth) {
    while (depth_ > 0) free_.wait(held);
    owner_ = std::this_thread::get_id();
    depth_ = depth;
  }
  void Give() {
    owner_ = std::thread::id();
    free_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable free_, woken_;
  std::thread::id owner_;
  int depth_ = 0;
};

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_CALL_MUTEX_H_
