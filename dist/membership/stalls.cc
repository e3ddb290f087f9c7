#include "dist/membership/stalls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <utility>

namespace sluice::dist {

using std::chrono::milliseconds;

Stalls::Stalls(int size, milliseconds limit, std::vector<std::string> hosts)
    : limit_(limit),
      hosts_(std::move(hosts)),
      members_(static_cast<size_t>(size)) {}

void Stalls::Heard(int rank, uint64_t run, std::string waits_in) {
  members_[static_cast<size_t>(rank)] = {run, std::move(waits_in)};
}

std::optional<std::string> Stalls::Pass(milliseconds time) {
  const Member* last = nullptr;
  for (const Member& member : members_) {
    if (member.waits_in.empty()) continue;
    if (last == nullptr || member.run > last->run) last = &member;
  }
  if (last == nullptr) {
    name_.clear();
    return std::nullopt;
  }
  if (name_.empty() || run_ != last->run) {
    run_ = last->run;
    name_ = last->waits_in;
    waited_ = next_line_ = limit_;
  } else {
    waited_ += time;
  }
  if (waited_ < next_line_) return std::nullopt;
  next_line_ = waited_ + limit_;
  return Line();
}

std::string Stalls::Line() const {
  const double seconds = std::chrono::duration<double>(waited_).count();
  std::vector<std::string> missing;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].run >= run_) continue;
    missing.push_back(hosts_.empty()
                          ? fmt::format("{}", rank)
                          : fmt::format("{} ({})", rank, hosts_[rank]));
  }
  if (missing.empty()) {
    return fmt::format(
        "nothing has moved in '{}' for {:.0f} s, where all {} "
        "ranks are or have been",
        name_, seconds, members_.size());
  }
  const bool one = missing.size() == 1;
  return fmt::format(
      "{} {} of {} {} not come to '{}', where others have been "
      "waiting for {:.0f} s",
      one ? "rank" : "ranks", fmt::join(missing, ", "), members_.size(),
      one ? "has" : "have", name_, seconds);
}

}  // namespace sluice::dist
