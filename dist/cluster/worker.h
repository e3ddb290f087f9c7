// A worker: a task whose devices and variables other tasks use. It is described
// its steps once, as parts, and then told to run them.
#ifndef SLUICE_DIST_CLUSTER_WORKER_H_
#define SLUICE_DIST_CLUSTER_WORKER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/cluster/options.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {
namespace dist {

struct WorkerOptions {
  TaskOptions task;
  std::vector<std::string> devices = {"/cpu:0"};  // that masters may use
  // Where other tasks reach the worker; port 0: one of the system's choice.
  std::string host = "127.0.0.1";
  int port = 0;
  // In place of both: a listening socket, which the worker takes.
  int listen_fd = -1;
  // Answers Cluster::Ask, on any thread; must not wait. May be empty.
  std::function<Result<std::string>(const std::string& text)> answer = {};
  // Called, on any thread, when another task has reached this one, maybe again
  // for the same one, or is gone and why; what it had under way here may not
  // have ended then. Must not wait. May be empty.
  std::function<void(const std::string& task, const Status& there)> seen = {};
};

// Serves until it is destroyed. Its variables live as long, for whichever
// master; a master's steps and runs end with the link to that master.
class Worker {
 public:
  // kInvalidArgument where the name is no task's or the credentials are none,
  // or another's; kFailedPrecondition for a host beyond the loopback without
  // credentials. A device that cannot be had is an error here, not at the first
  // master's.
  static Result<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  ~Worker();
  int port() const;

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_CLUSTER_WORKER_H_
