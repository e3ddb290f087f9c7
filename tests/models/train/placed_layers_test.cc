// A Trainer whose model has layers on another task.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/dist/cluster/workers.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {
namespace {

const char* const kThere = "/job:worker/task:0/cpu:0";

// The toy's network, whose first layers are `device`'s while it is trained.
TrainerSpec SplitSpec(const std::string& device) {
  TrainerSpec spec = PlainSpec();
  spec.model = [device](Scope& scope, const Features& in,
                        const RunContext& run) {
    Output x = in["x"];
    {
      const DeviceScope there(scope.graph(), run.training() ? device : "");
      for (const char* name : {"fc1", "fc2"}) {
        x = layers::Dense(scope / name, x, {.units = 16, .activation = Tanh});
      }
    }
    const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
    return ModelSpec{
        .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
        .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
  };
  return spec;
}

TEST_CASE("a trainer's layers on another task have the bits of one's own") {
  TemporaryFolder folder;
  std::vector<Trained> trained;
  for (const bool apart : {false, true}) {
    dist::testing::Workers tasks(1, dist::Transport::kAuto);
    Task task{.spec = [&](int) { return SplitSpec(apart ? kThere : "/cpu:0"); },
              .run = ToyRun(3),
              .options =
                  [&](int) {
                    TrainingOptions options;
                    options.log_dir = folder / (apart ? "apart" : "one");
                    options.session.fuse = false;
                    options.session.deterministic = true;
                    options.session.devices = {"/cpu:0"};
                    if (apart) {
                      options.session.devices.emplace_back(kThere);
                      options.session.cluster = tasks.Master();
                    }
                    return options;
                  }};
    trained.push_back(TrainWith(1, task)[0]);
  }
  CheckEqual(trained[1], trained[0]);
  REQUIRE(trained[1].result.evaluation);
  CHECK(*trained[1].result.evaluation->Find("accuracy") ==
        *trained[0].result.evaluation->Find("accuracy"));
}

}  // namespace
}  // namespace sluice::testing
