// The hosts of a job, as users list them.
#ifndef SLUICE_APPS_SLUICERUN_HOSTS_H_
#define SLUICE_APPS_SLUICERUN_HOSTS_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice::launcher {

struct Host {
  std::string name;  // "hostA", "user@hostA", "10.0.0.1"
  int slots = 1;     // processes

  // Without the user: where others reach it.
  std::string Address() const { return name.substr(name.rfind('@') + 1); }
};

// "hostA:4,hostB:4"; one slot where none are given. A host that is listed twice
// has the slots of both, in its first place, so that the ranks of a host are
// neighbours. A bracketed IPv6 address may have slots: "[fe80::1]:2". Throws
// Error(kInvalidArgument).
std::vector<Host> ParseHosts(std::string_view text);
// The text of Open MPI's hostfile: a host a line, "slots=4" behind it or
// "slots = 4"; "max_slots" and "max-slots" are read and not needed. Comments
// begin with '#'. Without slots it is 1: there all of the host's cores, which
// would have to be asked for.
std::vector<Host> ParseHostFile(std::string_view text);

// Where a rank runs.
struct Seat {
  size_t host;  // of the list
  int local_rank, local_size;
};
// Fills the hosts in order with so many ranks; 0: all slots. Throws Error where
// there are fewer slots.
std::vector<Seat> SeatRanks(const std::vector<Host>& hosts, int size);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_HOSTS_H_
