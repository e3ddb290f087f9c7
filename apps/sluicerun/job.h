// A job: its processes from the first start to the last end.
#ifndef SLUICE_APPS_SLUICERUN_JOB_H_
#define SLUICE_APPS_SLUICERUN_JOB_H_

#include <algorithm>
#include <string>
#include <vector>

#include "apps/sluicerun/hosts.h"
#include "apps/sluicerun/remote.h"

namespace sluice::launcher {

struct JobOptions {
  std::vector<std::string> command;
  int size = 1;     // ranks, which work
  int servers = 0;  // of parameters, beside them (dist/servers/server.h)
  std::vector<Host> hosts;  // by ssh; none: this one, without
  std::string hostfile;     // that they are of, or empty
  Ssh ssh;
  // The port of the first rank of each host; the host's other ranks, and then
  // its servers, listen at the ports behind it. In pods: of each process. 0:
  // any.
  int port = 0;
  bool tls = false;              // also where all is on this host
  std::string certificates;      // the user's folder; empty: ours
  bool allow_plaintext = false;  // no certificates
  bool tag_output = true;
  std::string output_dir;   // empty: to our own stdout and stderr
  double timeout_kill = 5;  // seconds from SIGTERM to SIGKILL
  // Seconds, as the program is told by its own flags of these names: for which
  // one that stands still is waited for, and one that is yet to come.
  double peer_timeout = 60, join_timeout = 60;
  int max_restarts = 0;  // how often it is started again
  // Ranks that are lost do not end the job while so many are left; 0: any does.
  int least = 0;
  // The most ranks that there may ever be, where that was said, else 0: more
  // than are started where a hostfile may list more hosts later on.
  int most = 0;
  std::string id;  // SLUICE_JOB (dist/launch_info.h)
  bool pin = false;

  int Most() const { return std::max(size, most); }
  bool Grows() const { return least > 0 && most > 0 && !hostfile.empty(); }
};

inline constexpr int kFailure = 1;  // of ours, not of a rank
inline constexpr int kUsage = 2;    // of ours, and of every program of Sluice's
// 128 + a signal's number, for what a signal has ended: as shells count.
inline constexpr int kSignalBase = 128;
// Exit codes for a command that cannot be run, as in shells.
inline constexpr int kNotFound = 127;
inline constexpr int kNotRunnable = 126;

// Runs the job and says on stderr why it failed. Where a rank has failed, the
// job is started again as often as the options say, but for what would end so
// each time (kUsage and below), and where a signal has ended it. The exit code:
// 0 where every process ended with 0, else that of the first that did not, of
// the last start. Throws Error where it cannot begin.
int RunJob(const JobOptions& options);

// Prints what RunJob would run, one line per rank in the shell's words.
void PrintJob(const JobOptions& options);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_JOB_H_
