// A process of ours in the place of a rank that runs on another host: it runs
// ssh, hands on signals and roster packets, writes what the rank prints, and
// ends as the rank does.
#ifndef SLUICE_APPS_SLUICERUN_RELAY_H_
#define SLUICE_APPS_SLUICERUN_RELAY_H_

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "apps/sluicerun/signals.h"

namespace sluice::launcher {

// The relay ends by one of these signals, which no rank does: where the way to
// a rank that has begun is lost, and where there never was one. ssh's own code
// (255) would not tell that from a rank that ends with it.
inline constexpr int kOutOfReach = SIGPWR;
inline constexpr int kNeverReached = SIGSTKFLT;
inline constexpr int kSshFailed = 255;

// Never returns: in a child of the launcher, whose process is `parent`.
// `roster` is the launcher's socket for it; below 0: none.
[[noreturn]] void RunRelay(const std::vector<std::string>& command,
                           const std::string& plan, int out, int err,
                           int roster, pid_t parent,
                           const SignalQueue& signals);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_RELAY_H_
