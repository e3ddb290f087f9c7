// Clang's thread-safety annotations, and the mutex types that carry them.
// With clang, -Wthread-safety checks that a field marked GUARDED_BY(mutex_) is
// touched only while mutex_ is held. Other compilers see plain std::mutex.
#ifndef SLUICE_ENGINE_THREAD_ANNOTATIONS_H_
#define SLUICE_ENGINE_THREAD_ANNOTATIONS_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SLUICE_THREAD_ATTRIBUTE_(x) __attribute__((x))
#else
#define SLUICE_THREAD_ATTRIBUTE_(x)
#endif

#define CAPABILITY(x) SLUICE_THREAD_ATTRIBUTE_(capability(x))
#define SCOPED_CAPABILITY SLUICE_THREAD_ATTRIBUTE_(scoped_lockable)
// A field that may be touched only while the mutex is held; what it points to.
#define GUARDED_BY(x) SLUICE_THREAD_ATTRIBUTE_(guarded_by(x))
#define PT_GUARDED_BY(x) SLUICE_THREAD_ATTRIBUTE_(pt_guarded_by(x))
// A function whose caller must hold, or must not hold, the mutexes.
#define REQUIRES(...) SLUICE_THREAD_ATTRIBUTE_(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SLUICE_THREAD_ATTRIBUTE_(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) SLUICE_THREAD_ATTRIBUTE_(acquire_capability(__VA_ARGS__))
#define RELEASE(...) SLUICE_THREAD_ATTRIBUTE_(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) \
  SLUICE_THREAD_ATTRIBUTE_(try_acquire_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS \
  SLUICE_THREAD_ATTRIBUTE_(no_thread_safety_analysis)

namespace sluice {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for a scope.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable. Wait may return without a notification, so call it in
// a loop that tests the condition while the mutex is held:
//   MutexLock lock(mutex_);
//   while (queue_.empty()) changed_.Wait(mutex_);
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    cv_.wait(held);
    held.release();
  }
  // False when the deadline passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      REQUIRES(mutex) {
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = cv_.wait_until(held, deadline);
    held.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_THREAD_ANNOTATIONS_H_
