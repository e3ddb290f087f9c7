#include "dist/mpi/long_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::dist {

LongWaits::LongWaits(std::string who, std::chrono::milliseconds after,
                     std::function<void(std::string_view)> note)
    : who_(std::move(who)),
      after_(after),
      note_(std::move(note)),
      thread_([this] { Look(); }) {}

LongWaits::~LongWaits() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  ends_.NotifyAll();
  thread_.join();
}

void LongWaits::Set(const std::string* what) {
  const MutexLock lock(mutex_);
  what_ = what;
  waited_ = Duration(0);
}

void LongWaits::Look() {
  using Clock = std::chrono::steady_clock;
  // Some looks in the time that is said.
  const Duration look = std::min<Duration>(after_ / 8, std::chrono::seconds(1));
  Duration next = after_;
  Clock::time_point looked = Clock::now();
  for (;;) {
    std::string line;
    {
      const MutexLock lock(mutex_);
      const Clock::time_point until = looked + look;
      while (!ended_ && ends_.WaitUntil(mutex_, until)) {
      }
      if (ended_) return;
      const Clock::time_point now = Clock::now();
      waited_ += std::min(now - looked, 2 * look);
      looked = now;
      if (waited_ < after_ || what_ == nullptr) next = after_;
      if (what_ == nullptr || waited_ < next) continue;
      next += after_;
      line = fmt::format(
          "{} has been in {} for {:.0f} s, where others have not come", who_,
          *what_, std::chrono::duration<double>(waited_).count());
    }
    note_(line);
  }
}

}  // namespace sluice::dist
