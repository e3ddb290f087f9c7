// An elastic job's roster as the launcher keeps it: who of it is there, who is
// lost, and what each is told (roster.h).
#ifndef SLUICE_DIST_MEMBERSHIP_ROSTER_KEEPER_H_
#define SLUICE_DIST_MEMBERSHIP_ROSTER_KEEPER_H_

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/membership/roster.h"
#include "dist/net/descriptor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// One thread. Waits for nobody.
class RosterKeeper {
 public:
  // How often Keep has to be called, at least.
  static constexpr std::chrono::milliseconds kTick{100};

  // `say` is told, in a line, what users want to know: who is lost, who has
  // come in, with how many it goes on, and every 10 s who is waited for.
  RosterKeeper(int least, std::chrono::milliseconds patience,
               std::function<void(const std::string&)> say)
      : roster_(least, patience), say_(std::move(say)) {}

  // A rank that was started, its socket, and where it is.
  void Add(int rank, Descriptor socket, RosterHost host = {});
  void AddPolled(std::vector<pollfd>* polled) const;
  // Hears what has come, decides and says what there is to say.
  void Keep();
  // `how`: in words. Whether nobody needed it any more.
  bool Ended(int rank, bool well, const std::string& how);
  // Whether a rank that has not been said to have ended ever was in a group.
  bool CameIn(int rank) const { return roster_.CameIn(rank); }
  // All are told to end: with as many as there are, or because of an error.
  void WindUp() { roster_.WindUp(); }
  void End(const std::string& why);
  // The ranks that are to be killed.
  std::vector<int> TakeCondemned() { return std::exchange(condemned_, {}); }
  // Asks the launcher's part on its host to do it.
  void TellToKill(int rank) const { Tell(rank, kRosterKill); }
  bool ended_well() const { return roster_.ended_well(); }
  // Nobody that comes now is of any use.
  bool over() const { return !over_.empty() || ended_well(); }

 private:
  using Clock = std::chrono::steady_clock;

  // False: the rank has closed its end.
  bool Hear(int rank, const Descriptor& socket);
  void Tell(int rank, std::string_view packet) const;
  void Announce(const Roster::Begun& begun);
  void NoteMissing();
  void SayOver();

  Roster roster_;
  const std::function<void(const std::string&)> say_;
  std::map<int, Descriptor> sockets_;
  std::vector<std::string> news_;  // since the last group
  std::vector<int> condemned_;
  std::set<int> doomed_;    // condemned, until they have ended
  std::set<int> unneeded_;  // of them
  std::string over_;        // why there are no more groups
  bool said_over_ = false;
  std::chrono::milliseconds noted_{0};  // who was missing, after so long
  Clock::time_point kept_ = Clock::now();
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_MEMBERSHIP_ROSTER_KEEPER_H_
