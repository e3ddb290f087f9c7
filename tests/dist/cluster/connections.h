// This process's ends of connections, for tests that cut them.
#ifndef SLUICE_TESTS_DIST_CLUSTER_CONNECTIONS_H_
#define SLUICE_TESTS_DIST_CLUSTER_CONNECTIONS_H_

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dist/net/address.h"

namespace sluice::dist::testing {

// The files that are open.
inline std::vector<int> Descriptors() {
  std::vector<int> all;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    all.push_back(std::stoi(entry.path().filename().string()));
  }
  return all;
}

// The ends whose own address, of the internet, is one of these.
inline std::vector<int> EndsAt(const std::function<bool(const Address&)>& own) {
  std::vector<int> ends;
  for (const int descriptor : Descriptors()) {
    const auto here = LocalAddressOf(descriptor);
    const auto peer = PeerAddressOf(descriptor);
    if (here.ok() && peer.ok() && here->is_internet() && own(*here)) {
      ends.push_back(descriptor);
    }
  }
  return ends;
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_CONNECTIONS_H_
