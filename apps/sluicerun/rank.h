// One process of a job: what it is told, and how it is started.
#ifndef SLUICE_APPS_SLUICERUN_RANK_H_
#define SLUICE_APPS_SLUICERUN_RANK_H_

#include <sys/resource.h>

#include <string>
#include <utility>
#include <vector>

#include "apps/sluicerun/forked.h"
#include "apps/sluicerun/signals.h"

namespace sluice::launcher {

// The plan that the ranks of a job on one host have in common.
struct JobPlan {
  std::vector<std::string> command;  // the program, found as a shell finds it
  int size = 1;
  int first = 0, local_size = 1;  // ranks of this host: from the first on
  std::string id;                 // of the job, each time that it is started
  std::string coordinator;        // host:port
  int first_port = 0;             // where `first` listens, then others; 0: any
  std::string token;              // 64 hexadecimal digits
  std::string servers;            // host:port of each, with commas; or none
  bool servers_return = false;    // one that ends is started again
  bool elastic = false;           // they meet as a roster says; no coordinator
  std::string address;            // then: of this host, where there are others
  // The credentials (dist::TextOf), by rank on this host; or empty.
  std::vector<std::string> credentials;
  std::string certificates;      // the user's folder of them, or empty
  bool allow_plaintext = false;  // to other hosts
  int listen_fd = -1;            // listening at the coordinator's address
  bool reads = true;             // rank 0 has our standard input
  bool pin = false;
  std::vector<int> cpus;   // that this process may use, for `pin`
  rlimit open_files = {};  // what the ranks get
};

// The variables of dist/launch_info.h, but for the descriptors'.
std::vector<std::pair<std::string, std::string>> RankVariables(
    const JobPlan& plan, int rank);

// The rank's share of the CPUs, as many as the others have or one less; where
// ranks outnumber CPUs one, which some then share.
std::vector<int> RankCpus(const JobPlan& plan, int rank);

// The CPUs that this process may use, ascending.
std::vector<int> AllowedCpus();

// 32 random bytes in hexadecimal. Throws Error.
std::string NewToken();

// The variables of a parameter server, which has none of a rank's.
std::vector<std::pair<std::string, std::string>> ServerVariables(
    const JobPlan& plan, int server);

// The two ends of the roster's socket in an elastic job: the process's, and its
// launcher's.
struct RosterEnds {
  dist::Descriptor member, launcher;
};
// False with errno.
bool OpenRoster(RosterEnds* ends);

Started NotStarted(int error);

// Starts the rank; returns once the program runs. It inherits nothing of ours
// but its own descriptors and what we were given, and it gets SIGTERM when we
// die. Rank 0 reads our stdin unless that is a terminal, whose keys are for us
// (a process group in the background may not read it); others read nothing.
Started StartRank(const JobPlan& plan, int rank, const SignalQueue& signals);

// Starts a parameter server in the same way. It reads nothing and may use all
// CPUs.
struct ServerPlan {
  int number = 0;
  int listen_fd = -1;       // at its address
  std::string credentials;  // dist::TextOf; or none
};
Started StartServer(const JobPlan& plan, const ServerPlan& server,
                    const SignalQueue& signals);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_RANK_H_
