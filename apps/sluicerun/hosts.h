// The hosts of a job, as users list them.
#ifndef SLUICE_APPS_SLUICERUN_HOSTS_H_
#define SLUICE_APPS_SLUICERUN_HOSTS_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::launcher {

struct Host {
  std::string name;  // "hostA", "user@hostA", "10.0.0.1"
  int slots = 1;     // processes

  // The name without the user: where others reach the host.
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
// Reads the hostfile of this name. Throws Error, also where it cannot be read.
std::vector<Host> ReadHostFile(const std::string& path);

// A hostfile that others write while the job runs: in place, or another in its
// place under the same name.
class HostFile {
 public:
  // A hostfile that has not been read yet. `say` is told, in a line and once,
  // why it gives no hosts.
  HostFile(std::string path, std::function<void(const std::string&)> say)
      : path_(std::move(path)), say_(std::move(say)) {}

  // Its hosts, if its text has changed. A file that cannot be read, or is no
  // hostfile, counts as unchanged; so does one that can be read but once, a
  // pipe.
  std::optional<std::vector<Host>> Changed();

 private:
  const std::string path_;
  const std::function<void(const std::string&)> say_;
  std::optional<std::string> text_;  // the last one, whatever it was
  std::string trouble_;              // that was said
};

// Where a rank runs.
struct Seat {
  size_t host;  // of the list
  int local_rank, local_size;
};
// Fills the hosts in order with so many ranks; 0: all slots. Throws Error where
// there are fewer slots.
std::vector<Seat> SeatRanks(const std::vector<Host>& hosts, int size);
// The first free slot beside those that are taken, of which a host has `most`
// at most; none on hosts that are silent, by their place in the list. nullopt
// where there is none.
std::optional<Seat> FreeSeat(const std::vector<Host>& hosts,
                             const std::vector<Seat>& taken,
                             const std::set<size_t>& silent, int most);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_HOSTS_H_
