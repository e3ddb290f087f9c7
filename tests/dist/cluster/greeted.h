// Members of a cluster that have begun to come to a task of it.
#ifndef SLUICE_TESTS_DIST_CLUSTER_GREETED_H_
#define SLUICE_TESTS_DIST_CLUSTER_GREETED_H_

#include <chrono>

#include "dist/collective/hello.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "tests/dist/cluster/workers.h"

namespace sluice::dist::testing {

// A member of the cluster that has said hello to the task there, and nothing
// yet of who it is.
inline Socket Greeted(int port, const char* version = SLUICE_VERSION) {
  const Deadline soon = After(std::chrono::seconds(5));
  Socket socket = Socket::Connect("127.0.0.1", port, soon).ValueOrThrow();
  Hello hello;
  hello.token = ClusterToken();
  hello.version = version;
  hello.lane = Lane::kTask;
  ThrowIfError(SendHello(hello, socket, soon));
  return socket;
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_GREETED_H_
