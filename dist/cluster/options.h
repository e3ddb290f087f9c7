// The names, addresses and credentials of the tasks of a cluster.
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

// What a task is given about itself.
struct TaskOptions {
  std::string name;   // "/job:worker/task:1", of the cluster's only one
  std::string token;  // what tasks of this cluster know, and no other
  // With credentials all traffic is encrypted and each task proves its name:
  // /job:worker/task:1 is sluice://JOB/worker/1 by its certificate. Without
  // them there must be a token, and traffic stays on the loopback unless
  // allow_plaintext lets it go further in the clear.
  std::optional<Credentials> credentials = {};
  bool allow_plaintext = false;
  // A task that shows no sign of life for so long, at least a second, is gone.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(10);
  Transport transport = Transport::kAuto;
  // Called, with a line without a newline, for refusals, for a port that is not
  // to be had, and, each time that stall_note has passed, for a task that this
  // one waits for and that is not there yet. Must not ask anything of the
  // cluster. May be empty.
  std::function<void(std::string_view)> note = {};
  // Called, by another thread, with a line without a newline, when a step here
  // has waited for stall_note for a tensor of a task that lives, and again each
  // time that as much more has passed. Names both. May be empty.
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
