// Peers, one of whom is refused a call: the others hear of it, and the next
// calls meet again.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/dist/cluster/peer_sessions.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;
using sluice::testing::ErrorOf;

// What all peers have fed, added up, and each one's rank: of which call it is,
// it shows.
struct Sums {
  Graph graph;
  std::vector<Output> x, y;  // by rank
  // The sum goes from rank to rank, and back to those from `first` on.
  explicit Sums(int peers, int first = 0) {
    const std::vector<std::string> devices = DevicesOf(peers);
    Output sum;
    for (int rank = 0; rank < peers; ++rank) {
      const DeviceScope there(graph, devices[rank]);
      x.push_back(graph.Placeholder("x" + std::to_string(rank), DType::kFloat32,
                                    {100}));
      sum = rank == 0 ? Output(x[0] * 1.0f) : sum + x[rank];
    }
    for (int rank = first; rank < peers; ++rank) {
      const DeviceScope there(graph, devices[rank]);
      y.push_back(sum + static_cast<float>(rank));
    }
  }
  std::vector<FeedShape> Shapes() const {
    std::vector<FeedShape> shapes;
    for (const Output& feed : x) shapes.push_back({feed, {100}});
    return shapes;
  }
  std::vector<Tensor> Feeds(int call, int64_t elements = 100) const {
    return std::vector<Tensor>(x.size(),
                               Tensor::Full(DType::kFloat32, {elements}, call));
  }
};

// Peers count runs by their calls. One that ends early, for its feeds, its
// fetches, or since it cannot be prepared, is one of them.
TEST_CASE("a call that one peer is refused fails for all, the next meets") {
  for (uint32_t seed = 1; seed <= sluice::testing::Rounds(12u); ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    const int peers = 2 + static_cast<int>(seed % 2);
    // Otherwise all need something of all others.
    const bool one_way = seed % 4 < 2;
    const int first = one_way ? peers - 1 : 0;
    Groups groups = JoinAll(peers, {});
    InThreads(peers, [&](int rank) {
      const Sums sums(peers, first);
      SessionOptions options = OptionsOf(*groups[rank]);
      options.concurrent_runs = 1 + rank;
      Session session(sums.graph, options);
      PreparedStep step = session.Prepare(sums.Shapes(), sums.y, {});
      std::mt19937 random(seed);  // the same for all
      for (int call = 0; call < 30; ++call) {
        const int refused = static_cast<int>(random() % (2 * peers));
        const uint32_t how = random() % 3;
        std::vector<Tensor> fetches = step.MakeFetches();
        const std::string error = ErrorOf([&] {
          if (refused == rank && how == 0) {
            step.Run(sums.Feeds(call, 99), fetches);
          } else if (refused == rank && how == 1) {
            fetches.pop_back();
            step.Run(sums.Feeds(call), fetches);
          } else if (refused == rank) {
            session.Run({{sums.x[0], Tensor::Full(DType::kInt64, {100}, 1)}},
                        sums.y);
          } else {
            step.Run(sums.Feeds(call), fetches);
          }
        });
        CAPTURE(call);
        CAPTURE(error);
        if (refused >= peers) {
          REQUIRE(error == "(no error)");
          if (rank < first) continue;
          CHECK(fetches[rank - first].At(99) == peers * call + rank);
        } else if (refused == rank) {
          CHECK(error != "(no error)");
        } else if (!one_way || refused < rank || error != "(no error)") {
          // Who only sends may be through before.
          CHECK(Contains(error, TaskName(refused)));
        }
      }
      ThrowIfError(groups[rank]->Barrier("done"));
    });
  }
}

TEST_CASE("an earlier run's error takes the place of a call") {
  for (uint32_t seed = 1; seed <= sluice::testing::Rounds(12u); ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    Groups groups = JoinAll(2, {});
    InThreads(2, [&](int rank) {
      const Sums sums(2);
      SessionOptions options = OptionsOf(*groups[rank]);
      options.concurrent_runs = 1 + 2 * rank;
      Session session(sums.graph, options);
      PreparedStep step = session.Prepare(sums.Shapes(), sums.y, {});
      constexpr int kCalls = 60;
      constexpr double kNever = -1;
      std::vector<std::vector<Tensor>> values;
      std::vector<PendingRun> runs(kCalls);
      for (int call = 0; call < kCalls; ++call) {
        values.push_back(step.MakeFetches());
        values[call][rank] = Tensor::Full(DType::kFloat32, {100}, kNever);
        if (rank == 0 && call % 7 == 2 + static_cast<int>(seed % 5)) {
          session.Cancel();
        }
        (void)ErrorOf([&] {
          runs[call] = step.Start(sums.Feeds(call), values[call], 0);
        });
      }
      for (PendingRun& run : runs) {
        if (run.valid()) (void)ErrorOf([&] { run.Wait(); });
      }
      // It is over before the first is cancelled.
      CHECK(values[0][rank].At(99) == rank);
      for (int call = 0; call < kCalls; ++call) {
        const double got = values[call][rank].At(99);
        CAPTURE(call);
        CAPTURE(got);
        CHECK((got == 2 * call + rank || got == kNever));
      }
      ThrowIfError(groups[rank]->Barrier("done"));
    });
  }
}

}  // namespace
}  // namespace sluice::dist::testing
