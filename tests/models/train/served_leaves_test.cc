// Virtual workers whose variables are on parameter servers: the bits of one
// process that has them itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dist/servers/server.h"
#include "engine/cpu_features.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckGoesOn;
using testing::CheckSameBits;
using testing::kSync;
using testing::Task;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;
using testing::Virtual;
using testing::WideTask;
using testing::WithRandomOptimizer;

std::vector<Trained> TrainCut(int servers, int workers, const Task& task) {
  return TrainOn(servers, workers, kSync, task, [](TrainingServers& all) {
    all.cut_from = 1;
    all.dense_from = 1;
  });
}

// With dropout, statistics and a table, at any precision. What is measured is
// compared as well.
TEST_CASE("any number of workers and servers trains the bits of one process") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t leaves = int64_t{1} << random() % 4;
    const auto workers = static_cast<int>(
        1 + random() % static_cast<uint64_t>(std::min<int64_t>(leaves, 4)));
    const auto servers = static_cast<int>(1 + random() % 3);
    const uint32_t seed = random();
    Task task = WideTask(seed, 2);
    task.run.batch_size = leaves + static_cast<int64_t>(random() % 30);
    // Half of them end with a batch that some leaves have nothing of.
    const bool repeats = random() % 2 == 0;
    if (trial % 2 == 1) {
      task.spec = [spec = task.spec, seed, repeats](int rank) {
        return WithRandomOptimizer(spec(rank), seed, repeats);
      };
    }
    constexpr Precision kPrecisions[] = {
        Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16};
    constexpr Recompute kWhich[] = {Recompute::kNone, Recompute::kNorms,
                                    Recompute::kAll};
    task.options = [&](int) {
      TrainingOptions options = Virtual(leaves);
      options.session.precision = kPrecisions[trial / 4 % 3];
      options.gradients_between =
          trial % 4 == 0 ? DType::kBFloat16 : DType::kFloat32;
      options.recompute = kWhich[trial % 3];
      options.log_every = 3;
      return options;
    };
    CAPTURE(trial);
    CAPTURE(leaves);
    CAPTURE(workers);
    CAPTURE(servers);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    const Trained one = TrainWith(1, task)[0];
    const std::vector<Trained> served = TrainCut(servers, workers, task);
    REQUIRE(static_cast<int>(served.size()) == workers);
    for (const Trained& each : served) CheckSameBits(each, one);
  }
}

TEST_CASE("any number of them goes on where another stopped, or none") {
  std::mt19937 random(6);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    Task whole = WideTask(seed, 3);
    whole.options = [](int) { return Virtual(4); };
    CheckGoesOn(whole, random, [&](Task task) {
      task.options = [options = task.options](int rank) {
        TrainingOptions of_leaves = options(rank);
        of_leaves.virtual_workers = 4;
        of_leaves.session.deterministic = true;
        return of_leaves;
      };
      const auto servers = static_cast<int>(random() % 4);
      const auto workers = static_cast<int>(1 + random() % 3);
      CAPTURE(servers);
      CAPTURE(workers);
      return TrainCut(servers, workers, task)[0];
    });
  }
}

// Servers as they are, but that one of them says that it computes with another
// instruction set.
class OfAnotherIsa final : public Cluster {
 public:
  OfAnotherIsa(std::shared_ptr<Cluster> servers, std::string which)
      : servers_(std::move(servers)), which_(std::move(which)) {}
  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    return servers_->Open(request);
  }
  Result<std::string> Ask(const std::string& task,
                          const std::string& text) override {
    SLUICE_ASSIGN_OR_RETURN(std::string answer, servers_->Ask(task, text));
    if (text != dist::kAskIsa) return answer;
    CHECK(answer == ChosenIsa());
    return task == which_ ? "z80" : answer;
  }

 private:
  const std::shared_ptr<Cluster> servers_;
  const std::string which_;
};

TEST_CASE("servers of another instruction set are refused") {
  for (const int64_t leaves : {0, 2}) {
    CAPTURE(leaves);
    Task task = WideTask(0, 1);
    task.options = [&](int) { return Virtual(leaves); };
    const std::vector<Trained> all =
        TrainOn(2, 2, kSync, task, [](TrainingServers& servers) {
          servers.cluster =
              std::make_shared<OfAnotherIsa>(servers.cluster, "/job:ps/task:1");
        });
    // Without leaves only the servers update, and by one alone each variable.
    for (const Trained& each : all) {
      CHECK(testing::Contains(each.error, leaves > 0
                                              ? "/job:ps/task:1 computes with "
                                                "z80, this worker with "
                                              : ""));
      CHECK(each.error.empty() == (leaves == 0));
    }
  }
}

}  // namespace
}  // namespace sluice
