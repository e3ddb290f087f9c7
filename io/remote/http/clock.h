// Time, which tests take away.
#ifndef SLUICE_IO_REMOTE_HTTP_CLOCK_H_
#define SLUICE_IO_REMOTE_HTTP_CLOCK_H_

#include <chrono>
#include <ctime>

namespace sluice::remote {

// The time of day, and waiting. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  static Clock& System();

  virtual std::chrono::steady_clock::time_point Now() = 0;
  virtual std::time_t Time() = 0;  // seconds since 1970
  virtual void Sleep(std::chrono::milliseconds time) = 0;
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_CLOCK_H_
