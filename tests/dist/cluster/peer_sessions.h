// Sessions of peers, a group's ranks as threads.
#ifndef SLUICE_TESTS_DIST_CLUSTER_PEER_SESSIONS_H_
#define SLUICE_TESTS_DIST_CLUSTER_PEER_SESSIONS_H_

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/cluster/peers.h"
#include "dist/collective/group.h"
#include "graph/session/session.h"

namespace sluice::dist::testing {

inline std::string TaskName(int rank) {
  return "/job:peer/task:" + std::to_string(rank);
}

inline std::vector<std::string> DevicesOf(int peers) {
  std::vector<std::string> devices;
  for (int rank = 0; rank < peers; ++rank) {
    devices.push_back(TaskName(rank) + "/cpu:0");
  }
  return devices;
}

inline PeersOptions PeerOptions(std::string name, Transport transport) {
  PeersOptions peers;
  peers.task.stall_note = std::chrono::milliseconds(300);
  peers.task.name = std::move(name);
  peers.task.token = "peers";
  peers.task.transport = transport;
  peers.task.peer_timeout = std::chrono::seconds(5);
  return peers;
}

// Of a peer of `group`, with the devices of all.
inline SessionOptions OptionsOf(Group& group, const PeersOptions& peers) {
  SessionOptions options;
  options.devices = DevicesOf(group.size());
  options.task = peers.task.name;
  options.cluster = MakePeers(peers, group).ValueOrThrow();
  return options;
}
inline SessionOptions OptionsOf(
    Group& group, Transport transport = Transport::kAuto,
    std::function<void(std::string_view)> stalled = nullptr) {
  PeersOptions peers = PeerOptions(TaskName(group.rank()), transport);
  peers.task.stalled = std::move(stalled);
  return OptionsOf(group, peers);
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_PEER_SESSIONS_H_
