#include "dist/membership/pulse.h"

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <utility>

#include "dist/net/descriptor.h"

namespace sluice::dist {
namespace {

// Several of them fit what Exchange (dist/net/exchange.h) listens for.
constexpr std::chrono::milliseconds kBetween(250);

}  // namespace

Pulse::Pulse(std::vector<const Socket*> sockets)
    : sockets_(std::move(sockets)), thread_([this] { Beat(); }) {}

Pulse::~Pulse() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  ends_.NotifyAll();
  thread_.join();
}

void Pulse::Beat() {
  std::byte beat{1};
  const iovec beats = {&beat, 1};
  const MutexLock lock(mutex_);
  while (!ended_) {
    for (const Socket* socket : sockets_) (void)socket->TrySend({&beats, 1});
    const Deadline next = After(kBetween);
    while (!ended_ && ends_.WaitUntil(mutex_, next)) {
    }
  }
}

}  // namespace sluice::dist
