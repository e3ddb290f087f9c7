// Who an elastic job's processes are, from one membership to the next: what
// they say to their launcher, what it answers, and how it decides.
//
// Each process, a member by its seat, has a socket of packets to the launcher,
// of which each is a text. On another host it ends in the launcher's part
// there, which hands them on.
//
//   beat                                   it lives
//   meet PORT DONE PATIENCE SILENCE BUILD WHY
//                                          it is in no group, and listens at
//                                          PORT of its host
//   in                                     the group that it was told of has
//                                          formed
//   go EPOCH PORT ADDRESS SEAT,SEAT,...    the next group, by rank; rank 0
//                                          listens there. Of a host but the
//                                          first, a seat is SEAT/HOST, by
//                                          number
//   call                                   to rank 0: others wait to come in
//   apart                                  to rank 0: its group, which is not
//                                          whole yet, will not be
//   end WHY                                there will be no next group
//   kill                                   not to the member: its launcher's
//                                          part on another host ends it
#ifndef SLUICE_DIST_MEMBERSHIP_ROSTER_H_
#define SLUICE_DIST_MEMBERSHIP_ROSTER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// The largest packet.
inline constexpr size_t kRosterBytes = size_t{1} << 16;
inline constexpr std::string_view kRosterKill = "kill";
inline constexpr std::string_view kRosterIn = "in";

// What a member that can be in the next group says of itself.
struct Meeting {
  int port = 0;
  int64_t done = -1;  // steps; below 0: it has no state
  // How long to wait for others to come, where they are needed; and how long a
  // silent member is believed to live.
  std::chrono::milliseconds patience{0}, silence{0};
  // A word that must be the same for all of a group: Sluice's version and the
  // instruction set.
  std::string build;
  std::string why;  // what ended the group before, in one line
};
// Where a seat is: the number of its host in this job, and where others reach
// that.
struct RosterHost {
  int number = 0;
  std::string address = "127.0.0.1";
};
// A group to be.
struct Assembly {
  uint32_t epoch = 0;
  int port = 0;
  std::vector<int> seats;             // by rank
  std::vector<int> hosts;             // their numbers, parallel
  std::string address = "127.0.0.1";  // rank 0's
};

std::string Encoded(const Meeting& meeting);
std::string Encoded(const Assembly& assembly);
// Parse any text: kDataLoss for what makes no sense.
Result<Meeting> ParseMeeting(std::string_view text);
Result<Assembly> ParseAssembly(std::string_view text);

// The launcher's decisions. It has no clock, connections or processes: it is
// told what happens, and how much time passes.
//
// A group is of all that are there. When it has come apart, each that lives
// comes to meet, and the next one begins when all have: one that does not come
// and is silent has to be killed, one that is not silent is waited for. Whoever
// was started since is in it, too, if it has come by then; if it comes later,
// rank 0 is called, and all meet, once for all that are being started, if these
// come within its patience. One of another build than the others is not needed.
// Rank 0 becomes who has done most; those of its host follow, and then host by
// host the others.
//
// The members of a group that has formed notice themselves who is silent. Until
// then it is noticed here, for all of them if need be: they may have been
// stopped one by one, so that nobody is left who waits.
class Roster {
 public:
  // With fewer than `least` members no group begins, but to save and end.
  // `patience`: how long to wait for the first to come, which says how long
  // others are waited for.
  explicit Roster(int least,
                  std::chrono::milliseconds patience = std::chrono::seconds(60))
      : least_(least), patience_(patience) {}

  void Started(int seat, RosterHost host = {});
  void Heard(int seat);
  void Meets(int seat, Meeting meeting);
  // The member's group is whole.
  void Formed(int seat);
  // `well`: with nothing left to do, where it was in a group.
  void Ended(int seat, bool well);
  // All were told to end: as many as there are suffice.
  void WindUp() { winds_up_ = true; }
  void Pass(std::chrono::milliseconds time);

  // The next group, when it can begin; it has begun then. `done`: the steps
  // that it goes on from.
  struct Begun {
    Assembly assembly;
    int64_t done = -1;
    std::string why;  // one that was told of the end of the group before
    std::vector<int> newcomers;
  };
  std::optional<Begun> TakeGroup();
  // The seat that is to be called (rank 0's): once in each group.
  std::optional<int> TakeCall();
  // Rank 0 of a group that is not whole, when another of it has ended or given
  // it up: it may wait for that one.
  std::optional<int> TakeApart();
  // The seats that the others wait for in vain.
  std::vector<int> Silent() const;
  // The seats that are yet to come to a first group, or to the next one, and
  // how long nothing has gone on for want of them.
  std::vector<int> Missing() const;
  std::chrono::milliseconds waited() const { return waited_; }
  // The seats that have come too late, or differ from the others: then in what.
  std::vector<int> Unneeded() const;
  std::string Differs(int seat) const;
  // Whether it ever was in a group, of one that lives.
  bool CameIn(int seat) const;
  // Why there will be no next group, once that is decided.
  const std::optional<std::string>& verdict() const { return verdict_; }
  // All that are meeting.
  std::vector<int> Waiting() const { return Of(State::kMeets); }
  bool ended_well() const { return ended_well_; }

 private:
  enum class State : uint8_t { kStarts, kIn, kMeets };
  struct Member {
    State state = State::kStarts;
    bool was_in = false;  // a group
    bool formed = false;  // the one that it is in
    Meeting meeting;      // the last
    std::string differs;  // from those that were in a group; in words
    RosterHost host;
    std::chrono::milliseconds silent{0};
    std::chrono::milliseconds met{0};  // how long, where it does
  };

  std::vector<int> Of(State state) const;
  bool Waited() const;
  // Whether any of the members that meet was in a group.
  bool AnyWasIn() const;
  // Which of the seats is to be rank 0.
  int FirstOf(const std::vector<int>& seats) const;
  Begun Begin(int first, const std::vector<int>& seats);

  const int least_;
  const std::chrono::milliseconds patience_;
  std::map<int, Member> members_;  // that live
  std::vector<int> group_;         // the present one, by rank
  uint32_t epoch_ = 0;
  bool called_ = false;
  bool apart_ = false;  // it is not whole, and nobody has been told so
  bool winds_up_ = false, ended_well_ = false;
  // Since nobody is in a group and, where nobody met, one came or was started.
  std::chrono::milliseconds waited_{0};
  // Groups of the same, one behind another, that have done nothing.
  bool others_ = false;  // than in the last one
  int64_t done_ = -1;
  int in_vain_ = 0;
  std::optional<std::string> verdict_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_MEMBERSHIP_ROSTER_H_
