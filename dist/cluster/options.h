// Who the tasks of a cluster are, and how they know each other.
#ifndef SLUICE_DIST_CLUSTER_OPTIONS_H_
#define SLUICE_DIST_CLUSTER_OPTIONS_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "dist/collective/options.h"
#include "dist/net/credentials.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {
namespace dist {

// A task's own.
struct TaskOptions {
  std::string name;   // "/job:worker/task:1", of the cluster's only one
  std::string token;  // what tasks of this cluster know, and no other
  // With them all is encrypted and each task shows that it is who it says:
  // /job:worker/task:1 is sluice://JOB/worker/1 by its certificate. Without
  // them there must be a token, and it stays on the loopback unless it may go
  // further in the clear.
  std::optional<Credentials> credentials = {};
  bool allow_plaintext = false;
  // A task that shows no sign of life for so long, at least a second, is gone.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(10);
  Transport transport = Transport::kAuto;
  // Told of refusals, of a port that is not to be had, and, each time that
  // stall_note has passed, for which task this one waits that is not there yet;
  // without a newline, and must not ask anything of the cluster. May be empty.
  std::function<void(std::string_view)> note = {};
  // Told for which task, and for which tensor, a step here has waited for so
  // long though it lives, and again each time that as much more has passed; by
  // another thread, without a newline. May be empty.
  std::function<void(std::string_view)> stalled = {};
  std::chrono::milliseconds stall_note = std::chrono::seconds(10);  // above 0
};

// Where a task of a cluster is.
struct ClusterTask {
  std::string name, host;
  int port = 0;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_CLUSTER_OPTIONS_H_
