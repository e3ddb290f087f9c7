// The interface through which a session uses tasks of other processes, which
// run parts of its steps; dist/cluster/ implements it.
#ifndef SLUICE_GRAPH_SESSION_CLUSTER_H_
#define SLUICE_GRAPH_SESSION_CLUSTER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct StepPart;  // graph/compile/step_part.h

// "/job:worker/task:1" of "/job:worker/task:1/cpu:0".
inline std::string TaskOf(const std::string& device) {
  return device.substr(0, device.rfind('/'));
}
// Whether a device belongs to the session's own process, whose task is `task`
// (SessionOptions::task, "" for a master). A device without a task always does.
inline bool IsHere(const std::string& device, const std::string& task) {
  const std::string of = TaskOf(device);
  return of.empty() || of == task;
}

// What all parts of a run share, whichever tasks run them.
struct RunOrder {
  RunKey key;
  uint64_t step = 0;  // keys randomness, together with the replica
  uint32_t replica = 0;
  Rendezvous::TimePoint deadline = Rendezvous::TimePoint::max();
};

// Told, once and from any thread, that a task's parts of a run have ended.
class RunEnd {
 public:
  virtual void Ended(const Status& status) = 0;

 protected:
  ~RunEnd() = default;
};

// The parts of one step on one task, which keeps them until this object is
// destroyed.
class RemoteParts {
 public:
  virtual ~RemoteParts() = default;
  // Starts a run of the parts and does not wait. `end` is told when it is over,
  // also if it could not start or the task is gone.
  virtual void Start(const RunOrder& order, RunEnd& end) = 0;
  // Tells the task that the run has ended everywhere, with `status`. Afterwards
  // nothing of this run is in flight.
  virtual void Release(const RunKey& run, const Status& status) = 0;
};

// A session's connection to the other tasks. Thread-safe. Errors name the task.
class ClusterSession {
 public:
  virtual ~ClusterSession() = default;

  // The rendezvous whose keys and exchanges reach all of the tasks.
  virtual std::shared_ptr<Rendezvous> rendezvous() = 0;
  // Tells the tasks, if they begin runs without being told to, that this one is
  // not begun here, and why.
  virtual void Refuse(const RunKey&, const Status&) {}
  // Looks for tasks that are gone and may have come back, and lets tasks that
  // have lost each other meet again. Returns another number than before when a
  // device may have come back with another incarnation: parts must then be
  // registered anew. Quick while all tasks are there.
  virtual Result<uint64_t> Connect() = 0;
  // A DeviceDescription's text (graph/passes/device_description.h) for each of
  // the devices that were asked for, in that order, as of the last Connect.
  virtual std::vector<std::string> Descriptions() const = 0;
  // Registers parts of a step, all of them for devices of the task that
  // `device` belongs to. They travel as text.
  virtual Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device, const std::vector<const StepPart*>& parts) = 0;

  // Variables by device and name, as Session has them. Read gives an
  // uninitialised one as kFailedPrecondition.
  virtual Result<Tensor> Read(const std::string& device,
                              const std::string& variable) = 0;
  virtual Status Write(const std::string& device, const std::string& variable,
                       const Tensor& value) = 0;
  virtual Result<bool> IsInitialized(const std::string& device,
                                     const std::string& variable) = 0;
  // Reads or writes rows from `begin` on of a variable that has a value.
  virtual Result<Tensor> ReadRows(const std::string& device,
                                  const std::string& variable,
                                  int64_t /*begin*/, int64_t /*count*/) {
    return Unimplemented("no rows of '" + variable + "' from " + device);
  }
  virtual Status WriteRows(const std::string& device,
                           const std::string& variable, int64_t /*begin*/,
                           const Tensor& /*rows*/) {
    return Unimplemented("no rows of '" + variable + "' to " + device);
  }
};

// The tasks that a session may use. Thread-safe.
class Cluster {
 public:
  virtual ~Cluster() = default;
  struct Request {
    std::vector<std::string> devices;  // of other tasks, whole names
    // The session's own devices: incarnations, and descriptions as text.
    std::vector<uint64_t> incarnations;
    std::vector<std::string> descriptions;
    int concurrent_runs = 1;
    // SessionOptions::container; "": variables live as long as their tasks.
    std::string container;
  };
  // kNotFound for a device of a task that is not known.
  virtual Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) = 0;
  // Sends `text` to a task, by the task's name, and waits for the answer.
  // kUnimplemented if the task does not answer questions; for a task that is
  // Lost, the error that ended it.
  virtual Result<std::string> Ask(const std::string& task,
                                  const std::string& text) = 0;
  // Lets a task record for this process what its devices run from now on, for
  // any session, until EndTrace or the end of the connection. One trace at a
  // time: what the task has recorded so far is dropped.
  virtual Status BeginTrace(const std::string& task) {
    return Unimplemented(task + " does not trace");
  }
  // The task's recording as a Chrome trace (engine/runtime/trace.h), by the
  // task's own clock. kFailedPrecondition if it records none for this process.
  virtual Result<std::string> EndTrace(const std::string& task) {
    return Unimplemented(task + " does not trace");
  }
  // Seconds during which a receive or send of the sessions' steps has waited
  // for another task so far, as for Collective::seconds.
  virtual double seconds() const { return 0; }
  // Why a task that was reached before is gone; ok while none is. A run's error
  // may be another task's word of it. So a master asks all tasks and waits for
  // their answers: whoever has such an error finds the task gone here. Peers
  // say what they know by themselves, and do not wait.
  virtual Status Lost() { return {}; }
  // Tries once to reach a task that may have come back. On success the task has
  // ended all that this process ran there through lost connections, down to the
  // last instruction, and no longer counts as gone.
  virtual Status Renew(const std::string& task) {
    return Unimplemented(task + " is not looked for again");
  }
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_CLUSTER_H_
