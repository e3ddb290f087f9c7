// Time for tests of what waits.
#ifndef SLUICE_TESTS_SUPPORT_SLEPT_CLOCK_H_
#define SLUICE_TESTS_SUPPORT_SLEPT_CLOCK_H_

#include <chrono>
#include <ctime>
#include <mutex>

#include "io/remote/http/clock.h"

namespace sluice::testing {

// Time that passes only in Sleep. Thread-safe.
class SleptClock : public remote::Clock {
 public:
  std::chrono::steady_clock::time_point Now() override {
    const std::lock_guard lock(mutex_);
    return std::chrono::steady_clock::time_point() + slept_;
  }
  std::time_t Time() override { return start_ + Slept().count() / 1000; }
  void Sleep(std::chrono::milliseconds time) override {
    const std::lock_guard lock(mutex_);
    slept_ += time;
    ++sleeps_;
  }
  std::chrono::milliseconds Slept() {
    const std::lock_guard lock(mutex_);
    return slept_;
  }
  int sleeps() {
    const std::lock_guard lock(mutex_);
    return sleeps_;
  }

 private:
  const std::time_t start_ = std::time(nullptr);
  std::mutex mutex_;
  std::chrono::milliseconds slept_{0};
  int sleeps_ = 0;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SLEPT_CLOCK_H_
