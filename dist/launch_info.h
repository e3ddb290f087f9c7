// What a launcher tells each process of a job: who it is, and where to meet.
//
//   SLUICE_SIZE, SLUICE_RANK               processes of the job, and which one
//   SLUICE_LOCAL_SIZE, SLUICE_LOCAL_RANK   the same of those on this host
//   SLUICE_PINNED                          1 where the processes of this host
//                                          have cores of their own
//   SLUICE_COORDINATOR                     host:port where rank 0 listens
//   SLUICE_LISTEN_FD                       rank 0's: that socket, listening; a
//                                          server's: its own
//   SLUICE_TOKEN_FD                        a descriptor to read the job's token
//                                          from, to its end: 64 hexadecimal
//                                          digits; never an argument or a
//                                          variable, which others can read
//
//   SLUICE_CREDENTIALS_FD                  a descriptor to read the process's
//                                          certificate, key and authority from
//                                          (dist/net/credentials.h), to its end
//   SLUICE_CERTIFICATES                    in its place: a folder of them
//   SLUICE_ALLOW_PLAINTEXT                 1 where other hosts may be talked to
//                                          without
//   SLUICE_SERVERS                         where the job's parameter servers
//                                          listen: host:port,host:port
//   SLUICE_SERVERS_RETURN                  1 where one of these that ends is
//                                          started again, at the same address
//   SLUICE_SERVER                          of such a server, which has no rank:
//                                          which one it is
//   SLUICE_ROSTER_FD                       of an elastic job: a socket to the
//                                          launcher, which says who is of it
//                                          and where they meet
//                                          (dist/membership/roster.h); rank,
//                                          size, local rank and size are those
//                                          of the start, and there is no
//                                          coordinator
//   SLUICE_HOST                            of an elastic job on several hosts:
//                                          the address at which others reach
//                                          this one
//   SLUICE_JOB                             what the job is called, each time
//                                          that it is started; of any launcher
//   SLUICE_FIRST_PORT                      where the process with local rank 0
//                                          listens, the others at the ports
//                                          behind it; not set: anywhere
//
// Where none of these is set, other launchers are asked: SLUICE_CONFIG or
// TF_CONFIG (cluster_spec.h), the variables of Open MPI's mpirun or Slurm's
// srun. Then the secrets are the user's: SLUICE_CERTIFICATES, or
// SLUICE_TOKEN_FILE with the path of a file of 32 to 64 characters, which only
// its owner may read; SLUICE_COORDINATOR says where to meet where the launcher
// does not; SLUICE_SERVERS_RETURN and, but for lists of addresses,
// SLUICE_FIRST_PORT are as above.
//
// A host that is an IPv6 address is in brackets: [::1]:4000. All are set, but
// for SLUICE_PINNED, the last ten, the listener of other ranks than 0 and,
// where SLUICE_SIZE is 1, coordinator, listener and, without servers, token. A
// server has no ranks and no coordinator.
#ifndef SLUICE_DIST_LAUNCH_INFO_H_
#define SLUICE_DIST_LAUNCH_INFO_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/cluster_spec.h"
#include "dist/net/credentials.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool pinned = false;
  // Where rank 0 listens; in an elastic job, where this process is to listen. A
  // job of one process may have none of the rest.
  std::string host;
  int port = 0;
  // Rank 0's listening socket (in a part of a job any rank's), which whoever
  // joins takes; below 0: the process opens its own.
  int listen_fd = -1;
  // Where this process listens, for one group after another; 0: anywhere. A
  // server without listen_fd listens where `servers` has it.
  int own_port = 0;
  std::string token;  // what processes of this job know, and no other
  std::optional<Credentials> credentials;
  bool allow_plaintext = false;
  std::vector<TaskAddress> servers;  // of parameters
  bool servers_return = false;       // those that end are started again
  // No launcher ends them: rank 0 does, when the training has ended.
  bool ends_servers = false;
  int server = -1;  // which of them this process is, whose rank is then none
  bool evaluates = false;  // a job of its own, for what the other saves
  int roster_fd = -1;      // of an elastic job; below 0: this is none
  uint32_t epoch = 1;      // of the membership
  // The name of this host, where hosts are not told apart by address.
  std::string node;
  std::string group;  // a part of the job (Group::Split); empty: all of it
  // For a part of a job (Group::Split), or what is left of one: the job's rank
  // of each of its ranks, which certificates name; the job's size, and how many
  // of its processes are on this host. Empty: all of the above is of the job
  // itself.
  std::vector<int> job_ranks;
  int job_size = 0, job_local_size = 0;

  int JobRank(int of) const {
    return job_ranks.empty() ? of : job_ranks[static_cast<size_t>(of)];
  }
  int JobSize() const { return job_ranks.empty() ? size : job_size; }
  int JobLocalSize() const {
    return job_ranks.empty() ? local_size : job_local_size;
  }
};

// Reads it from the environment; nullopt where no launcher has set any of it.
// Launchers that contradict each other are an error. Waits for the whole token
// and closes its descriptor, so that it can be called once. kInvalidArgument
// naming the variables that are missing or make no sense.
Result<std::optional<LaunchInfo>> ReadLaunchInfo();

// SLUICE_JOB; empty where it is not set.
inline constexpr const char* kJobName = "SLUICE_JOB";
std::string JobName();

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_LAUNCH_INFO_H_
