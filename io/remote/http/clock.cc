#include "io/remote/http/clock.h"

#include <thread>

namespace sluice::remote {
namespace {

class SystemClock : public Clock {
 public:
  std::chrono::steady_clock::time_point Now() override {
    return std::chrono::steady_clock::now();
  }
  std::time_t Time() override { return std::time(nullptr); }
  void Sleep(std::chrono::milliseconds time) override {
    std::this_thread::sleep_for(time);
  }
};

}  // namespace

Clock& Clock::System() {
  static SystemClock clock;
  return clock;
}

}  // namespace sluice::remote
