// One step on one device, as it was cut for what passes were told: the device
// need not be what its description says, so that a CPU runs what a GPU would.
#ifndef SLUICE_TESTS_SUPPORT_CUT_STEP_H_
#define SLUICE_TESTS_SUPPORT_CUT_STEP_H_

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/executor.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/launches.h"
#include "graph/compile/lower.h"
#include "graph/compile/step_part.h"
#include "graph/passes/pipeline.h"

namespace sluice::testing {

class CutStep {
 public:
  // context: with a description of `device` alone.
  CutStep(const Graph& graph, const StepRequest& request, Device& device,
          passes::Context context, Precision precision) {
    context.fold = FoldNode;
    context.half = HalfTypeOf(precision);
    StepSettings settings;
    settings.precision = precision;
    StepParts cut = PartitionStep(ExtractStep(graph, request).ValueOrThrow(),
                                  context, settings)
                        .ValueOrThrow();
    REQUIRE(cut.parts.size() == 1);
    for (const auto& node : cut.parts[0].graph->nodes()) {
      ++nodes[node->op().name];
      for (const KernelLaunch& launch : LaunchesOf(*node)) {
        ++launches_[launch.kernel];
      }
    }
    plan_ =
        std::make_unique<Plan>(Compile(cut.parts[0], device).ValueOrThrow());
    arena_ = std::make_unique<Arena>(device.memory());
    executor_ = std::make_unique<Executor>(*plan_, device, *arena_);
  }

  void Run(std::vector<void*> feeds, std::vector<void*> fetches) {
    StepStop stop;
    stop.Begin(nullptr, {}, std::chrono::steady_clock::time_point::max());
    (void)executor_->Run({feeds, fetches, 0}, StepContext(), stop, nullptr)
        .ok();
    stop.End();
    ThrowIfError(stop.stopped() ? stop.status() : Status());
  }

  // On a GPU, of that kernel.
  int Launches(const std::string& kernel) const {
    const auto found = launches_.find(kernel);
    return found == launches_.end() ? 0 : found->second;
  }

  std::map<std::string, int> nodes;  // by op

 private:
  std::map<std::string, int> launches_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CUT_STEP_H_
