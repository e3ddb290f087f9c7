// How long a rank waits for others while it joins, and what it says meanwhile.
#ifndef SLUICE_DIST_COLLECTIVE_PATIENCE_H_
#define SLUICE_DIST_COLLECTIVE_PATIENCE_H_

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

using Note = std::function<void(std::string_view)>;

// Says every 10 s, or at another interval above 0, whom this rank waits for,
// and says so in the error at the deadline.
class Patience {
 public:
  Patience(std::string me, Deadline deadline, const Note& note,
           std::chrono::milliseconds every = std::chrono::seconds(10))
      : me_(std::move(me)),
        deadline_(deadline),
        note_(note),
        every_(std::min(every, kLongestWait)) {}

  // When to look again: at the next line or the end.
  Deadline next() const { return std::min(deadline_, next_line_); }
  // To be called when next() has passed. kDeadlineExceeded where that was the
  // end.
  Status Waited(const std::string& whom) {
    const Deadline now = std::chrono::steady_clock::now();
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    const std::string line =
        fmt::format("{} waits for {} ({} s)", me_, whom, seconds);
    if (now >= deadline_) return DeadlineExceeded(line);
    if (now >= next_line_) {
      if (note_) note_(line);
      next_line_ += every_;
    }
    return {};
  }

 private:
  const std::string me_;
  const Deadline deadline_;
  const Note& note_;
  const std::chrono::milliseconds every_;
  const Deadline start_ = std::chrono::steady_clock::now();
  Deadline next_line_ = start_ + every_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_PATIENCE_H_
