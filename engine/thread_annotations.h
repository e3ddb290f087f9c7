// Clang's thread-safety annotations, and the mutex types that carry them.
// With clang, -Wthread-safety checks that a field marked GUARDED_BY(mutex_) is
// touched only while mutex_ is held. Other compilers see plain std::mutex.
#ifndef SLUICE_ENGINE_THREAD_ANNOTATIONS_H_
#define SLUICE_ENGINE_THREAD_ANNOTATIONS_H_

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "engine/visibility.h"

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
#define ACQUIRE_SHARED(...) \
  SLUICE_THREAD_ATTRIBUTE_(acquire_shared_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) \
  SLUICE_THREAD_ATTRIBUTE_(release_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) \
  SLUICE_THREAD_ATTRIBUTE_(try_acquire_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS \
  SLUICE_THREAD_ATTRIBUTE_(no_thread_safety_analysis)

namespace SLUICE_PUBLIC sluice {

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

// Held by one writer or by any number of readers. A writer that waits goes
// before readers that come later, which std::shared_mutex does not promise:
// readers whose turns overlap would keep it out for good. So nobody may lock it
// for reading twice.
class CAPABILITY("shared_mutex") SharedMutex {
 public:
  SharedMutex() {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#if defined(__GLIBC__)
    pthread_rwlockattr_setkind_np(&attributes,
                                  PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    Check(pthread_rwlock_init(&lock_, &attributes));
    pthread_rwlockattr_destroy(&attributes);
  }
  ~SharedMutex() {
    pthread_rwlock_destroy(&lock_);
  }
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() ACQUIRE() {
    Check(pthread_rwlock_wrlock(&lock_));
  }
  void Unlock() RELEASE() {
    Check(pthread_rwlock_unlock(&lock_));
  }
  void LockShared() ACQUIRE_SHARED() {
    Check(pthread_rwlock_rdlock(&lock_));
  }
  void UnlockShared() RELEASE_SHARED() {
    Check(pthread_rwlock_unlock(&lock_));
  }

 private:
  // What fails is misuse, such as a second lock by the same thread.
  static void Check(int error) {
    if (error != 0) std::abort();
  }

  pthread_rwlock_t lock_;
};

// Hold a shared mutex for a scope.
class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex)
      : mutex_(mutex) {
    mutex_.LockShared();
  }
  ~ReaderLock() RELEASE() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};
class SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~WriterLock() RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
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
