#include "graph/passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "engine/catch_errors.h"

namespace sluice::passes {
namespace {

template <void (*kPass)(Graph&)>
Status Plain(Graph& graph, const Context&) {
  kPass(graph);
  return {};
}

template <DType kHalf>
Status Mix(Graph& graph, const Context&) {
  return MixPrecision(graph, kHalf);
}
template <DType kHalf>
bool Mixes(const Context& context) {
  return context.half == kHalf;
}

bool Simplifies(const Context& context) {
  return context.simplify;
}

bool AnyAccelerator(const Context& context) {
  return std::any_of(context.devices.begin(), context.devices.end(),
                     [](const DeviceDescription& device) {
                       return device.type != DeviceType::kCpu;
                     });
}

constexpr Pass kPipeline[] = {
    {"prune", "what nobody needs goes", Plain<Prune>},
    {"count_workers", "and this one's rank, in ops that hang on them",
     [](Graph& g, const Context& c) { return CountWorkers(g, c.workers); }},
    {"refine", "shapes concrete, constants folded",
     [](Graph& g, const Context& c) { return Refine(g, c.fold); }},
    {"spread_rows", "of large variables, over their devices",
     [](Graph& g, const Context&) { return SpreadVariables(g); }},
    {"simplify", "identities that hold bit for bit", Plain<Simplify>,
     Simplifies},
    {"merge", "common subexpressions", Plain<MergeCommon>, Simplifies},
    {"fold_batch_norm", "into weights, in frozen models", Plain<FoldBatchNorm>,
     Simplifies},
    {"prune", "what nobody needs goes", Plain<Prune>},
    {"place", "a device for each node",
     [](Graph& g, const Context& c) { return Place(g, c.devices); }},
    {"move_unsupported", "to the CPU, with soft placement",
     [](Graph& g, const Context& c) { return MoveUnsupported(g, c.devices); },
     [](const Context& c) { return c.soft_placement; }},
    {"count_on_cpu", "rows that are counted when the step runs",
     [](Graph& g, const Context& c) { return CountOnCpu(g, c.devices); },
     AnyAccelerator},
    {"meet_on_cpu", "where workers do not meet on their devices",
     [](Graph& g, const Context& c) {
       return MeetOnCpu(g, c.devices, c.meets_on);
     },
     [](const Context& c) { return c.workers != nullptr; }},
    {"bring_home", "feeds and fetches, in a cluster",
     [](Graph& g, const Context& c) { return BringHome(g, c.home); },
     [](const Context& c) { return !c.home.empty(); }},
    {"mix_float16", "mixed precision, on request", Mix<DType::kFloat16>,
     Mixes<DType::kFloat16>},
    {"mix_bfloat16", "mixed precision, on request", Mix<DType::kBFloat16>,
     Mixes<DType::kBFloat16>},
    {"pad_channels", "of half images, where convolutions like it",
     [](Graph& g, const Context& c) {
       PadChannels(g, c.devices, c.fold);
       return Status::Ok();
     }},
    {"prune", "what nobody needs goes", Plain<Prune>},
    {"order_variables", "reads before writes, and collectives in one order",
     [](Graph& g, const Context&) { return OrderVariables(g); }},
    {"commit_together", "no writes before the last exchange, in elastic jobs",
     [](Graph& g, const Context&) { return CommitTogether(g); },
     [](const Context& c) { return c.commit_together; }},
    {"fuse", "several nodes as one",
     [](Graph& g, const Context& c) {
       Fuse(g, c.devices);
       return Status::Ok();
     },
     [](const Context& c) { return c.fuse; }},
    {"turn_filters", "into the layout that convolutions read",
     [](Graph& g, const Context& c) {
       TurnFilters(g, c.devices);
       return Status::Ok();
     }},
    {"fuse_statistics", "into the convolutions before, on request",
     [](Graph& g, const Context& c) {
       FuseStatistics(g, c.devices);
       return Status::Ok();
     },
     [](const Context& c) { return c.fuse_statistics; }},
    {"start_collectives", "a start and a wait of each",
     [](Graph& g, const Context&) { return StartCollectives(g); }},
    {"schedule", "one order for all devices",
     [](Graph& g, const Context&) {
       g.Renumber(Schedule(g));
       return Status::Ok();
     }},
};

#ifdef NDEBUG
std::atomic<bool> verifies = false;
#else
std::atomic<bool> verifies = true;
#endif

}  // namespace

std::span<const Pass> Pipeline() {
  return kPipeline;
}

void VerifyEachPass() {
  verifies.store(true);
}

Status RunPipeline(Graph& graph, const Context& context,
                   std::vector<PassReport>* reports) {
  using Clock = std::chrono::steady_clock;
  for (const Pass& pass : kPipeline) {
    if (pass.when != nullptr && !pass.when(context)) continue;
    const Clock::time_point begin = Clock::now();
    // They build graph, and allocate constants.
    SLUICE_RETURN_IF_ERROR(
        CatchErrors([&] { return pass.run(graph, context); }));
    if (reports != nullptr) {
      const std::chrono::duration<double> taken = Clock::now() - begin;
      reports->push_back({pass.name, taken.count(),
                          static_cast<int64_t>(graph.nodes().size())});
    }
    if (!verifies.load()) continue;
    SLUICE_RETURN_IF_ERROR(
        Verify(graph).WithContext(fmt::format("after {}", pass.name)));
  }
  return {};
}

}  // namespace sluice::passes
