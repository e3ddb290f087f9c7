// File descriptors: closed with their owner, waited for until a deadline.
#ifndef SLUICE_DIST_NET_DESCRIPTOR_H_
#define SLUICE_DIST_NET_DESCRIPTOR_H_

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// The time to give up at. What needs no wait is still done after it.
using Deadline = std::chrono::steady_clock::time_point;
// A hundred years, for callers that never give up: milliseconds::max() is
// beyond what the clock can count, and waits are also added to and multiplied.
inline constexpr std::chrono::milliseconds kLongestWait =
    std::chrono::hours(100 * 365 * 24);
inline Deadline After(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + std::min(time, kLongestWait);
}

// A descriptor or none (negative). Movable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    // Through a temporary, which closes the old one.
    Descriptor taken(std::move(other));
    std::swap(descriptor_, taken.descriptor_);
    return *this;
  }
  ~Descriptor();

  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

  // Makes a descriptor from elsewhere close on exec and not block in reads and
  // writes. (Processes that share it see the latter.)
  void MakePrivateAndNonBlocking();

 private:
  int descriptor_ = -1;
};

struct Pipe {
  Descriptor read, write;

  bool open() const { return read.get() >= 0; }
};
// Opens a pipe that is closed on exec; `flags` are those of pipe2(2). The
// result is not open where none is to be had (errno).
Pipe OpenPipe(int flags = 0);

// Polls until the deadline, through signals: returns how many are ready, 0
// where the deadline has passed before, -1 with errno.
int Wait(std::span<pollfd> waiting, Deadline deadline);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_DESCRIPTOR_H_
