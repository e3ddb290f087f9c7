// Finds the ranks that keep the others waiting. That is no error: nobody can
// tell whether what a rank does in place of a collective ends.
#ifndef SLUICE_DIST_MEMBERSHIP_STALLS_H_
#define SLUICE_DIST_MEMBERSHIP_STALLS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::dist {

// It is told what happens and how much time passes, as Leases is.
class Stalls {
 public:
  // For ranks that say in which collective they are once that takes `limit`.
  // `hosts` are those of the ranks; empty: all are on one.
  Stalls(int size, std::chrono::milliseconds limit,
         std::vector<std::string> hosts = {});

  // A rank has begun `run` collectives; `waits_in` names the last one where it
  // has been in that for `limit`, else is empty.
  void Heard(int rank, uint64_t run, std::string waits_in);
  // A line for people, when there is one: after the limit and each time that as
  // much more has passed.
  std::optional<std::string> Pass(std::chrono::milliseconds time);

 private:
  struct Member {
    uint64_t run = 0;
    std::string waits_in;
  };
  std::string Line() const;

  const std::chrono::milliseconds limit_;
  const std::vector<std::string> hosts_;
  std::vector<Member> members_;
  // The last collective that some rank has been in for so long.
  uint64_t run_ = 0;
  std::string name_;
  std::chrono::milliseconds waited_{0}, next_line_{0};
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_STALLS_H_
