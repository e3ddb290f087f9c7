// The sign of life of a process whose threads are busy with something else.
#ifndef SLUICE_DIST_MEMBERSHIP_PULSE_H_
#define SLUICE_DIST_MEMBERSHIP_PULSE_H_

#include <thread>
#include <vector>

#include "dist/net/socket.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// Sends a byte into some sockets four times a second, from a thread of its own,
// from construction to destruction. A peer that does not read them, or is gone,
// disturbs nothing. A process that is stopped sends none.
class Pulse {
 public:
  // The owner of the sockets must keep them open as long as this lives, and
  // send nothing else through them. It may receive from them meanwhile.
  explicit Pulse(std::vector<const Socket*> sockets);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

 private:
  void Beat();

  const std::vector<const Socket*> sockets_;
  Mutex mutex_;
  CondVar ends_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_PULSE_H_
