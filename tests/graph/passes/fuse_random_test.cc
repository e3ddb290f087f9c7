// Random graphs, run fused and with every node by itself.
#include <doctest/doctest.h>

#include "tests/support/random_graph.h"

namespace sluice::testing {
namespace {

TEST_CASE("random graphs compute the same when fused") {
  int64_t fused_nodes = 0, plain_nodes = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Graph graph;
    RandomGraph random(graph, seed);
    random.Build(5 + static_cast<int>(seed) % 30);
    for (ExecutorMode mode : {ExecutorMode::kSerial, ExecutorMode::kDataflow}) {
      const auto wanted =
          RunGraph(graph, random, {.executor = mode, .fuse = false});
      const auto got = RunGraph(graph, random, {.executor = mode});
      REQUIRE_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(Distance(got[i], wanted[i]) < 1e-5);
      }
    }
    std::vector<FeedShape> feeds;
    for (const Feed& feed : random.Feeds()) {
      feeds.push_back({feed.output, feed.value.shape()});
    }
    Session plain(graph, {.fuse = false}), fused(graph);
    plain_nodes +=
        plain.Prepare(feeds, random.fetches(), random.targets()).info().nodes;
    fused_nodes +=
        fused.Prepare(feeds, random.fetches(), random.targets()).info().nodes;
  }
  MESSAGE(plain_nodes << " nodes, fused " << fused_nodes);
  CHECK(fused_nodes < plain_nodes * 9 / 10);
}

}  // namespace
}  // namespace sluice::testing
