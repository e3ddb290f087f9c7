#include "apps/sluicerun/standstill.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "apps/sluicerun/signals.h"

namespace sluice::launcher {

void Standstill::Look(pid_t pid) {
  siginfo_t info = {};
  // Each stop and each going on is told once, the last one last.
  while (waitid(P_PID, static_cast<id_t>(pid), &info,
                WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    signal_ = info.si_code == CLD_CONTINUED ? 0 : info.si_status;
    time_ = std::chrono::nanoseconds(0);
    info = {};
  }
}

void Standstill::Pass(std::chrono::nanoseconds time) {
  constexpr std::chrono::nanoseconds kMost = 2 * kStandstillTick;
  if (stopped()) time_ += std::min(time, kMost);
}

std::string Standstill::KilledText() const {
  return fmt::format("has stood still for {:.3g} s ({}), and is killed",
                     std::chrono::duration<double>(time_).count(),
                     SignalName(signal_));
}

}  // namespace sluice::launcher
