// How a group (group.h) behaves, and what it computes.
#ifndef SLUICE_DIST_COLLECTIVE_OPTIONS_H_
#define SLUICE_DIST_COLLECTIVE_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string_view>

#include "engine/reduction.h"

namespace sluice::dist {

struct GroupOptions {
  // For all processes to have come.
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);
  // A peer that moves less than a piece (256 KiB) within this time of a
  // collective is an error that names it. It is also how far the processes may
  // be apart when they begin one.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(60);
  // Told, while joining, who waits for whom (every 10 s) and which strangers
  // were refused (a line a second at most), without a newline. May be empty.
  std::function<void(std::string_view)> note;
};

using sluice::Reduction;

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_OPTIONS_H_
