// A job's beginning: who each rank is, where it runs, and what it is told.
#ifndef SLUICE_APPS_SLUICERUN_STARTING_H_
#define SLUICE_APPS_SLUICERUN_STARTING_H_

#include <sys/resource.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/sluicerun/hosts.h"
#include "apps/sluicerun/job.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/remote.h"
#include "apps/sluicerun/signals.h"
#include "dist/membership/roster.h"
#include "dist/net/socket.h"

namespace sluice::launcher {

// The plan that all ranks have in common; with ports of the user's also where
// rank 0 and the servers listen. Throws Error where there are not so many
// ports.
JobPlan PlanOf(const JobOptions& options);

// Starts the ranks, here or on other hosts: rank 0 first, then
// AwaitCoordinator, then the others. Each has secrets of its own: a job that is
// started again shares none with what may be left of the one before.
class Starting {
 public:
  // `open_files` is what the ranks get. Throws Error.
  Starting(const JobOptions& options, SignalQueue& signals, rlimit open_files);

  Started Start(int rank);
  // In an elastic job: the rank's process is gone, and its slot is free.
  void Lost(int rank);
  // Seats a rank that does not run where a slot is free; false: there is none.
  bool SeatAnew(int rank);
  // Seats a rank whose host does not answer on another.
  bool SeatElsewhere(int rank);
  // The hosts are these from now on: those that answered nothing are tried
  // again, those that are not listed have no free slot any more.
  void SetHosts(const std::vector<Host>& hosts);
  // Starts a server, before the ranks or after them, at the same address. On
  // this host its socket listens already; on another AwaitServer must follow
  // the first time.
  Started StartServer(int server);

  // Does what signals that have come ask for; false where the job ends by one.
  using Heed = std::function<bool()>;
  // Waits until rank 0's host has said, on the rank's stdout, where it listens,
  // if that was not told. False where the end of that or a signal that ends the
  // job has come first. Throws Error after two minutes.
  bool AwaitCoordinator(int out, const Heed& heed);
  // As AwaitCoordinator, for a server, whose address the ranks and servers that
  // follow are told.
  bool AwaitServer(int server, int out, const Heed& heed);

  // Rank 0 and the servers have them. Were they ours too, who connects would
  // not learn that these are gone. Servers' are kept until none is started any
  // more.
  void GiveUpListener() { listener_.reset(); }
  void GiveUpServerListeners() { server_listeners_.clear(); }

  // "rank 1 on hostB", or "rank 1" where there is but this host.
  std::string NameOf(int rank) const {
    return "rank " + std::to_string(rank) +
           (seats_.empty() ? "" : " on " + HostOf(rank).name);
  }
  std::string NameOfServer(int server) const {
    return "parameter server " + std::to_string(server) +
           (seats_.empty() ? "" : " on " + HostOfServer(server).name);
  }
  // Where a rank is, for the roster.
  dist::RosterHost PlaceOf(int rank) const;
  bool elsewhere() const { return !seats_.empty(); }
  // Whether its host has not left, and still has its slot.
  bool Listed(int rank) const {
    return seats_.empty() ||
           HostOf(rank).slots > seats_[static_cast<size_t>(rank)].local_rank;
  }

 private:
  RemotePlan PlanOn(int rank) const;
  RemotePlan PlanOfServer(int server) const;
  // Whether all of the job is there, and stays so.
  bool one_host() const { return hosts_.size() == 1 && !options_.Grows(); }
  const Host& HostOf(int rank) const {
    return hosts_[seats_[static_cast<size_t>(rank)].host];
  }
  // The servers' hosts: one after another, and again the first.
  const Host& HostOfServer(int server) const {
    return hosts_[static_cast<size_t>(server) % hosts_.size()];
  }
  std::optional<std::string> AwaitAddress(const Host& host, int out,
                                          const Heed& heed,
                                          std::string_view who);
  std::optional<std::string> NextLine(int descriptor, const Heed& heed,
                                      const std::string& late,
                                      dist::Deadline* limit) const;

  const JobOptions& options_;
  SignalQueue& signals_;
  JobPlan plan_;
  std::vector<std::string> credentials_, server_credentials_;
  std::optional<dist::Listener> listener_;
  std::vector<dist::Listener> server_listeners_;
  std::vector<int> server_ports_;  // of those on hosts
  // All that ever were: their places are their numbers in the roster.
  std::vector<Host> hosts_;
  std::vector<Seat> seats_;        // of all ranks that ever ran
  std::set<int> started_;          // and not lost
  std::set<size_t> silent_hosts_;  // that have not answered
};

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_STARTING_H_
