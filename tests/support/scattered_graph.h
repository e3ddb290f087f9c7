// Random graphs over several devices.
#ifndef SLUICE_TESTS_SUPPORT_SCATTERED_GRAPH_H_
#define SLUICE_TESTS_SUPPORT_SCATTERED_GRAPH_H_

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "graph/session/session.h"
#include "tests/support/random_graph.h"

namespace sluice::testing {

// "/cpu:0" and so on, two to four by seed.
inline std::vector<std::string> SomeCpus(uint32_t seed) {
  std::vector<std::string> devices;
  for (uint32_t i = 0; i < 2 + seed % 3; ++i) {
    devices.push_back("/cpu:" + std::to_string(i));
  }
  return devices;
}

// A random graph, the same for the same seed, with its nodes on random devices
// of those given; what stays beside a variable is on the first.
struct ScatteredGraph {
  Graph graph;
  RandomGraph random;
  std::vector<std::string> devices;

  ScatteredGraph(uint32_t seed, std::vector<std::string> on)
      : random(graph, seed), devices(std::move(on)) {
    std::mt19937 choose(seed * 7919);
    random.Build(5 + static_cast<int>(choose() % 30));
    for (const auto& node : graph.nodes()) {
      const bool stays = node->name().find("init") != std::string::npos ||
                         node->Is("Variable") || node->mutates() > 0;
      node->set_device(devices[stays ? 0 : choose() % devices.size()]);
    }
  }

  SessionOptions Options(
      bool fuse, std::shared_ptr<Rendezvous> rendezvous = nullptr) const {
    SessionOptions options;
    options.devices = devices;
    options.fuse = fuse;
    options.rendezvous = std::move(rendezvous);
    return options;
  }

  // From initial values, what some steps fetch and then the variable.
  std::vector<Tensor> Run(Session& session, int steps = 3) const {
    std::vector<Tensor> values;
    session.Initialize();
    for (int step = 0; step < steps; ++step) {
      for (Tensor& value :
           session.Run(random.Feeds(), random.fetches(), random.targets())) {
        values.push_back(std::move(value));
      }
    }
    values.push_back(session.Read(random.variable()));
    return values;
  }
};

inline void CheckSameBits(const std::vector<Tensor>& got,
                          const std::vector<Tensor>& wanted) {
  REQUIRE_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].BitEqual(wanted[i]));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SCATTERED_GRAPH_H_
