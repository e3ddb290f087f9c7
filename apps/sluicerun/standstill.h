// A child that stands still: SIGSTOP, a debugger's or a terminal's stop.
#ifndef SLUICE_APPS_SLUICERUN_STANDSTILL_H_
#define SLUICE_APPS_SLUICERUN_STANDSTILL_H_

#include <sys/types.h>

#include <chrono>
#include <string>

namespace sluice::launcher {

// The longest time between two calls of Pass.
inline constexpr std::chrono::milliseconds kStandstillTick{250};

class Standstill {
 public:
  // Asks the system what has become of the child, when SIGCHLD has come. Leaves
  // its end to be waited for.
  void Look(pid_t pid);
  // Counts, while it stands still, but never much at a time: this process may
  // have been stopped itself, as by Ctrl-Z. Many short times add up.
  void Pass(std::chrono::nanoseconds time);

  bool stopped() const { return signal_ != 0; }
  // How long the child has stood still, as counted by Pass.
  std::chrono::nanoseconds time() const { return time_; }
  // "has stood still for 3 s (SIGSTOP), and is killed"
  std::string KilledText() const;

 private:
  int signal_ = 0;  // that stopped it; 0: it runs
  std::chrono::nanoseconds time_{0};
};

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_STANDSTILL_H_
