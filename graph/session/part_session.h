// A worker's end of a session whose master is another task: devices, and parts
// of steps that are run when the master says.
#ifndef SLUICE_GRAPH_SESSION_PART_SESSION_H_
#define SLUICE_GRAPH_SESSION_PART_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "graph/passes/device_description.h"
#include "graph/session/cluster.h"

namespace SLUICE_INTERNAL sluice {

class Observer;

// Thread-safe.
class PartSession {
 public:
  struct Options {
    std::string job;  // of this task
    int task = 0;
    std::vector<std::string> devices;  // whole names, of this task
    std::string container;             // as SessionOptions::container
    int concurrent_runs = 1;
    std::shared_ptr<Rendezvous> rendezvous;
  };
  static Result<std::unique_ptr<PartSession>> Open(const Options& options);
  // Ends the runs under way and waits for their parts. Each run's RunEnd is
  // told before.
  ~PartSession();

  DeviceDescriptions Describe() const;
  // Prepares the parts of one step on these devices
  // (graph/compile/step_part.h). kFailedPrecondition for a part of another
  // incarnation, kResourceExhausted if the session has as many steps as it may.
  // The master chooses `number`, a new one each time.
  Status Register(uint64_t number, const std::vector<std::string>& parts);
  void Drop(uint64_t number);  // once its runs are over
  // Begins a run; waits for nothing. On error `end` is not told.
  Status Start(uint64_t number, const RunOrder& order, RunEnd& end);
  // Ends a run, if it is under way, wherever its parts are.
  void Stop(const RunKey& run, const Status& status);
  // Sets the observer of runs that begin from now on; null: none. It must
  // outlive the session: runs under way keep theirs, and are not waited for.
  void SetObserver(Observer* observer);

  // As the functions of ClusterSession.
  Result<Tensor> Read(const std::string& device, const std::string& variable);
  Status Write(const std::string& device, const std::string& variable,
               const Tensor& value);
  // Rows from `begin` on of a variable. kFailedPrecondition if it has no value,
  // kInvalidArgument if it has no such rows.
  Result<Tensor> ReadRows(const std::string& device,
                          const std::string& variable, int64_t begin,
                          int64_t count);
  Status WriteRows(const std::string& device, const std::string& variable,
                   int64_t begin, const Tensor& rows);
  Result<bool> IsInitialized(const std::string& device,
                             const std::string& variable);

 private:
  struct Impl;
  explicit PartSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_PART_SESSION_H_
