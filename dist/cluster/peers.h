// A cluster without a master: tasks that all run the same steps, each its own
// part (SessionOptions::task). Nobody is told to run anything; tensors go
// straight from task to task.
//
//   auto peers = dist::MakePeers({.task = {.name = "/job:worker/task:1",
//                                          .token = token}}, group)
//                    .ValueOrThrow();
//   SessionOptions options;
//   options.devices = {"/job:stage/task:0/cpu:0", "/job:stage/task:1/cpu:0"};
//   options.task = "/job:stage/task:1";
//   options.cluster = peers;
//   Session session(graph, options);  // all peers do
#ifndef SLUICE_DIST_CLUSTER_PEERS_H_
#define SLUICE_DIST_CLUSTER_PEERS_H_

#include <chrono>
#include <memory>
#include <string>

#include "dist/cluster/options.h"
#include "engine/runtime/collective.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Cluster;

namespace dist {

struct PeersOptions {
  // `task.name` is for messages and, with credentials, is their certificate's;
  // the names of the devices may be others.
  TaskOptions task;
  std::string host = "127.0.0.1";  // this one's, as the others reach it
  // The port to listen at; 0: any. Where the port is not to be had, any other
  // (and a note).
  int port = 0;
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
};

// `group` is of the peers, one or more, and is used when a session is opened,
// which all peers do in the same order; it must live until then. Sessions keep
// what they are given. A run of steps that differ in what goes from device to
// device is an error, which names two peers. A peer that is gone is an error of
// the runs that need it, and of all steps that are prepared afterwards.
// kInvalidArgument where the credentials are none, or another's than the name
// says; kFailedPrecondition for a host beyond the loopback without credentials.
Result<std::shared_ptr<Cluster>> MakePeers(const PeersOptions& options,
                                           Collective& group);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_CLUSTER_PEERS_H_
