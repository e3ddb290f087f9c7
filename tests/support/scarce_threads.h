// Threads that run out where a test says so. For one file of a program, whose
// pthread_create it replaces.
#ifndef SLUICE_TESTS_SUPPORT_SCARCE_THREADS_H_
#define SLUICE_TESTS_SUPPORT_SCARCE_THREADS_H_

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

#include "tests/support/sanitizers.h"

namespace sluice::testing {

// Sanitizers have a pthread_create of their own, which stays.
inline constexpr bool kThreadsRunOut = !kSanitized;

// How many more threads this one can begin; below 0: all.
inline thread_local int threads_left = -1;

}  // namespace sluice::testing

#if !defined(SLUICE_ADDRESS_SANITIZER) && !defined(SLUICE_THREAD_SANITIZER)
// Visible, since it is libstdc++.so that calls it.
extern "C" [[gnu::visibility("default")]] int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
    void* argument) noexcept {
  using sluice::testing::threads_left;
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}
#endif

#endif  // SLUICE_TESTS_SUPPORT_SCARCE_THREADS_H_
