#include "dist/collective/pulse.h"

#include <sys/socket.h>

#include <chrono>
#include <cstddef>

#include "dist/net/descriptor.h"

namespace sluice::dist {
namespace {

// Several of them fit what Exchange (dist/net/exchange.h) listens for.
constexpr std::chrono::milliseconds kBetween(250);

}  // namespace

Pulse::Pulse(const Socket& a, const Socket& b)
    : sockets_{a.descriptor(), b.descriptor()}, thread_([this] { Beat(); }) {}

Pulse::~Pulse() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  ends_.NotifyAll();
  thread_.join();
}

void Pulse::Beat() {
  const std::byte beat{1};
  const MutexLock lock(mutex_);
  while (!ended_) {
    for (const int socket : sockets_) {
      (void)send(socket, &beat, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    const Deadline next = After(kBetween);
    while (!ended_ && ends_.WaitUntil(mutex_, next)) {
    }
  }
}

}  // namespace sluice::dist
