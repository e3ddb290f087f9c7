// What a session needs of the tasks of other processes that run parts of its
// steps; dist/cluster/ has it.
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
// Whether a device is one of a session's own process: that is `task`
// (SessionOptions::task), or where that is empty none.
inline bool IsHere(const std::string& device, const std::string& task) {
  const std::string of = TaskOf(device);
  return of.empty() || of == task;
}

// What the parts of a run have in common, on whichever tasks.
struct RunOrder {
  RunKey key;
  uint64_t step = 0;  // that keys randomness, with the replica
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

// The parts of one step on one task, which has them until this goes.
class RemoteParts {
 public:
  virtual ~RemoteParts() = default;
  // Has them run; `end` is told also where that cannot be, or the task is gone.
  // Waits for nothing.
  virtual void Start(const RunOrder& order, RunEnd& end) = 0;
  // The run has ended everywhere, with this status. After it nothing of this
  // one is in flight.
  virtual void Release(const RunKey& run, const Status& status) = 0;
};

// A session's part of the other tasks. Thread-safe. Errors name the task.
class ClusterSession {
 public:
  virtual ~ClusterSession() = default;

  // Its keys and exchanges reach all of the tasks.
  virtual std::shared_ptr<Rendezvous> rendezvous() = 0;
  // Looks for tasks that are gone and may have come back, and has tasks that
  // have lost each other meet again. The number is another one when a device
  // may have come back with another incarnation: parts must be registered anew.
  // Quick while all are there.
  virtual Result<uint64_t> Connect() = 0;
  // A DeviceDescription's text (graph/passes/device_description.h) for each of
  // the devices that were asked for, in that order, as of the last Connect.
  virtual std::vector<std::string> Descriptions() const = 0;
  // Parts, all of one task's devices, which `device` is one of. They are as
  // texts where they travel.
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
  // Rows from `begin` on of one that has a value.
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

// Tasks that can be reached. Thread-safe.
class Cluster {
 public:
  virtual ~Cluster() = default;
  struct Request {
    std::vector<std::string> devices;  // of other tasks, whole names
    // Of the session's own devices, their descriptions as texts, too.
    std::vector<uint64_t> incarnations;
    std::vector<std::string> descriptions;
    int concurrent_runs = 1;
    // As SessionOptions has it; "": variables live as long as their tasks.
    std::string container;
  };
  // kNotFound for a device of a task that is not known.
  virtual Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) = 0;
  // What a task, by its name, says to that. Waits for it; kUnimplemented where
  // it is not made for questions, and for one that is Lost its end.
  virtual Result<std::string> Ask(const std::string& task,
                                  const std::string& text) = 0;
  // Has a task note what its devices run from now on, for whichever sessions,
  // for this one: until EndTrace, or the end of the connection. One at a time:
  // what it has noted so far is dropped.
  virtual Status BeginTrace(const std::string& task) {
    return Unimplemented(task + " does not trace");
  }
  // What it has noted, as a Chrome trace (engine/runtime/trace.h) by its own
  // clock. kFailedPrecondition where it notes nothing for this one.
  virtual Result<std::string> EndTrace(const std::string& task) {
    return Unimplemented(task + " does not trace");
  }
  // For how long some receive or send of its sessions' steps has waited for
  // another task so far, as Collective::seconds has it.
  virtual double seconds() const { return 0; }
  // Why a task that was there is gone; ok while all are that were reached.
  // Waits for nothing.
  virtual Status Lost() { return {}; }
  // One try to reach a task, which may have come back: has it end what this one
  // had there through connections that are lost, down to the last instruction,
  // and forgets that it was gone.
  virtual Status Renew(const std::string& task) {
    return Unimplemented(task + " is not looked for again");
  }
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_CLUSTER_H_
