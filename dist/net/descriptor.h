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

// When to give up. What needs no wait is still done when it has passed.
using Deadline = std::chrono::steady_clock::time_point;
// A hundred years, for who never gives up: milliseconds::max() is beyond what
// the clock can count, and what is waited for is also added to and multiplied.
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

  // For one that came from elsewhere: not for programs that this one starts,
  // and never waited for in a read or write. (Who shares it sees the latter.)
  void MakePrivateAndNonBlocking();

 private:
  int descriptor_ = -1;
};

struct Pipe {
  Descriptor read, write;

  bool open() const { return read.get() >= 0; }
};
// Not for programs that this one starts; `flags` as of pipe2(2). Not open where
// there is none to be had (errno).
Pipe OpenPipe(int flags = 0);

// poll(2) until the deadline, signals or not: how many are ready, 0 where it
// has passed before, -1 with errno.
int Wait(std::span<pollfd> waiting, Deadline deadline);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_DESCRIPTOR_H_
