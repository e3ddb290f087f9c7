#include "dist/net/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sluice::dist {
namespace {

// Rounded up, or the last part of a millisecond would be spent asking.
int MillisecondsUntil(Deadline deadline) {
  using std::chrono::milliseconds;
  const Deadline now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  constexpr milliseconds kLongest = std::chrono::hours(1);
  return static_cast<int>(
      std::min(std::chrono::ceil<milliseconds>(deadline - now), kLongest)
          .count());
}

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Descriptor::MakePrivateAndNonBlocking() {
  fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags >= 0) fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK);
}

Pipe OpenPipe(int flags) {
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), flags | O_CLOEXEC) != 0) return {};
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

int Wait(std::span<pollfd> waiting, Deadline deadline) {
  while (true) {
    const int timeout = MillisecondsUntil(deadline);
    const int ready = poll(waiting.data(), waiting.size(), timeout);
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return ready;
    if (ready == 0 && timeout == 0) return 0;
  }
}

}  // namespace sluice::dist
