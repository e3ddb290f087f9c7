// The devices of this process that train one model together: their sessions,
// and the variables that each has.
#ifndef SLUICE_MODELS_TRAIN_RUN_MIRRORS_H_
#define SLUICE_MODELS_TRAIN_RUN_MIRRORS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "graph/session/session.h"
#include "models/train/workers/device_threads.h"

namespace sluice {

// `home` is the session that has the variables for everybody else: hooks,
// checkpoints, evaluations. Where they are on each device it is the first
// one's, and updates are made by all alike; where they are on the host it alone
// updates, and devices have copies of what they read, new ones in each step.
// One thread, but for Take. Must not outlive what it is given.
class Mirrors {
 public:
  // With one device, home's own.
  Mirrors(Session& home, DeviceThreads& devices);
  // With those of `devices`, whose sessions are of the same graph and
  // `options`. Of the variables, leaves read `read`.
  Mirrors(const Graph& graph, Session& home, DeviceThreads& devices,
          bool variables_on_each, const SessionOptions& options,
          std::vector<Output> read);

  size_t size() const { return sessions_.size(); }
  Session& session(size_t device) const { return *sessions_[device]; }
  // Those that update.
  const std::vector<Session*>& updating() const { return updating_; }
  DeviceThreads& threads() const { return threads_; }

  // Home's variables have been written, other than by updates.
  void MarkWritten() { written_ = true; }
  // Before the devices begin with a step.
  void Begin();
  // Each device then, on its own thread: its variables are home's.
  void Take(size_t device);

 private:
  Session& home_;
  DeviceThreads& threads_;
  const bool on_each_;
  std::vector<std::unique_ptr<Session>> own_;
  std::vector<Session*> sessions_;  // by device
  std::vector<Session*> updating_;
  std::vector<Output> copied_;
  std::vector<Tensor> values_;  // of `copied_`, in this step
  bool written_ = true;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_MIRRORS_H_
