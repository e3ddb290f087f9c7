// A process's side of an elastic job's roster (roster.h).
#ifndef SLUICE_DIST_MEMBERSHIP_ROSTER_MEMBER_H_
#define SLUICE_DIST_MEMBERSHIP_ROSTER_MEMBER_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "dist/membership/roster.h"
#include "dist/net/descriptor.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// A thread beats, whatever the others do, and hears what the launcher says, to
// this object's end.
class RosterMember {
 public:
  // Takes the socket. A beat is some way within `silence`.
  RosterMember(Descriptor socket, std::chrono::milliseconds silence);
  ~RosterMember();
  RosterMember(const RosterMember&) = delete;
  RosterMember& operator=(const RosterMember&) = delete;

  // Waits for the next group, which is one with this process: until others have
  // come, or the launcher says why there is none.
  Result<Assembly> Meet(const Meeting& meeting) EXCLUDES(mutex_);
  // The group that it was told of has formed.
  void SayIn() const { (void)Send(kRosterIn).ok(); }
  // Whether others wait to come into the group, of which this is rank 0.
  bool called() const EXCLUDES(mutex_);
  // A descriptor with something to read when the group that it was told of last
  // will not be whole, where this is its rank 0.
  int apart() const { return apart_.get(); }

 private:
  void Run();
  // Takes one packet; false at the end.
  bool Hear() EXCLUDES(mutex_);
  void Take(std::string_view packet) EXCLUDES(mutex_);
  Status Send(std::string_view packet) const;

  Descriptor socket_;
  const std::chrono::milliseconds beat_;
  Pipe ends_;               // closed at one end when the thread is to end
  const Descriptor apart_;  // an eventfd
  mutable Mutex mutex_;
  CondVar changes_;
  std::optional<Assembly> next_ GUARDED_BY(mutex_);
  bool called_ GUARDED_BY(mutex_) = false;
  Status over_ GUARDED_BY(mutex_);  // why there will be no more
  std::thread thread_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_MEMBERSHIP_ROSTER_MEMBER_H_
