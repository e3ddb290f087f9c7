// The devices of this process that train one model together: their sessions and
// each session's variables.
#ifndef SLUICE_MODELS_TRAIN_RUN_MIRRORS_H_
#define SLUICE_MODELS_TRAIN_RUN_MIRRORS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "graph/session/session.h"
#include "models/train/workers/device_threads.h"

namespace sluice {

// `home` is the session whose variables hooks, checkpoints and evaluations use.
// If variables are on each device, home is the first device's session, and all
// devices make the same updates. If they are on the host, home alone updates,
// and devices get new copies of the variables that they read in each step.
// One thread, but for Take. Must not outlive what it is given.
class Mirrors {
 public:
  // With one device, home's own.
  Mirrors(Session& home, DeviceThreads& devices);
  // With several `devices`, whose sessions are of the same graph and `options`.
  // `read`: the variables that leaves read.
  Mirrors(const Graph& graph, Session& home, DeviceThreads& devices,
          bool variables_on_each, const SessionOptions& options,
          std::vector<Output> read);

  size_t size() const { return sessions_.size(); }
  Session& session(size_t device) const { return *sessions_[device]; }
  // The sessions that update.
  const std::vector<Session*>& updating() const { return updating_; }
  DeviceThreads& threads() const { return threads_; }

  // To be called when home's variables have been written other than by updates.
  void MarkWritten() { written_ = true; }
  // To be called before the devices begin a step.
  void Begin();
  // To be called then for each device, on its own thread: gives the device
  // home's values of the variables.
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
