// Jobs on several hosts, as far as their ranks know.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_HOSTS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_HOSTS_H_

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/algorithms.h"
#include "dist/collective/group.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist::testing {

inline constexpr Algorithm kAllAlgorithms[] = {
    Algorithm::kAuto, Algorithm::kRing, Algorithm::kHalvingDoubling,
    Algorithm::kHierarchical};

// Any number of them, of any sizes, in any order of ranks; often one.
inline std::vector<int> RandomHosts(int size, std::mt19937& random) {
  const unsigned most = random() % 3 == 0 ? 1 : 1 + random() % 4;
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) {
    hosts.push_back(static_cast<int>(random() % most));
  }
  return hosts;
}

// Each rank at the host that is said, by rank.
inline Groups JoinOn(const std::vector<int>& hosts, Algorithm all_reduce,
                     Wires wires, const GroupOptions& options = {}) {
  std::vector<LaunchInfo> infos = Launch(static_cast<int>(hosts.size()), wires);
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].node = "host" + std::to_string(hosts[i]);
  }
  return JoinEach(infos, [&](int rank) {
    GroupOptions mine = options;
    mine.all_reduce = all_reduce;
    mine.transport = TransportOf(wires, rank);
    return mine;
  });
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_HOSTS_H_
