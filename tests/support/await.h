// What comes in a moment, by another thread or process.
#ifndef SLUICE_TESTS_SUPPORT_AWAIT_H_
#define SLUICE_TESTS_SUPPORT_AWAIT_H_

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace sluice::testing {

// Where it does not come within a minute the case has failed, and ends.
inline void AwaitTrue(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("it did not come within a minute");
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_AWAIT_H_
