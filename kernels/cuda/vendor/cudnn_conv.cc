// Convolutions by cuDNN. When a kernel is made cuDNN's suggestions are timed,
// one of each engine first, for as long as the search for a model's plans may
// take (plan_search.h), and the fastest is taken, which a file in the user's
// cache folder remembers as it is; where the same bits are wanted in every run,
// the first deterministic one that runs. Filters that are not in cuDNN's
// layout, OHWI, are transposed to it and back in scratch memory. Where cuDNN
// has nothing, the next kernel of the table is made, our own. Where sums of
// what a convolution makes are asked for too, plans that have them compete with
// plans that leave them to a kernel of ours behind.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/note.h"
#include "engine/semantics/product.h"
#include "engine/semantics/strided_move.h"
#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/ops/norm/channel_sums.h"
#include "kernels/cuda/runtime/choice_file.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/measure.h"
#include "kernels/cuda/runtime/nvidia_library.h"
#include "kernels/cuda/runtime/plan_search.h"
#include "kernels/cuda/runtime/user_cache.h"
#include "kernels/cuda/vendor/cudnn_conv_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kPriority = 20;
constexpr size_t kMostWorkspace = size_t{1} << 30;

ChoiceFile& Choices() {
  static ChoiceFile* const file = [] {
    const std::filesystem::path folder = UserCacheFolder();
    return new ChoiceFile(folder.empty() ? folder : folder / "convolutions");
  }();
  return *file;
}

class DnnConvolution final : public Kernel {
 public:
  DnnConvolution(const KernelSpec& spec, const ConvGeometry& geometry)
      : spec_(spec) {
    conv_ = {.geometry = geometry,
             .pass = spec.conv.pass,
             .dtype = spec.inputs[0].dtype};
    if (conv_.pass == ConvPass::kForward) {
      conv_.bias = spec.inputs.size() > 2;
      conv_.addend = spec.inputs.size() > 3;
      conv_.relu = HasRelu(spec);
    }
    sums_ = spec.outputs.size() > 1;
    if (sums_) {
      sums_bytes_ =
          ChannelSumsWorkspace(Rows(), geometry.y_channels(), conv_.dtype);
    }
    ohwi_ = spec.conv.ohwi;
    const int64_t filter =
        ohwi_ ? 0 : geometry.taps() * geometry.in * geometry.y_channels();
    const size_t bytes = static_cast<size_t>(filter) * SizeOf(conv_.dtype);
    filter_bytes_ = RoundUp(bytes, kScratchAlignment);
  }

  // Unimplemented where cuDNN has no engine, or none of them runs.
  Status Prepare() {
    SLUICE_ASSIGN_OR_RETURN(device_, DnnDevice::Current());
    DnnPlanner& planner = device_->planner();
    MutexLock lock(planner.mutex);
    const DnnTarget target = {planner.handle, nullptr};
    std::vector<DnnDescriptor> suggestions;
    if (sums_) (void)Suggest(/*sums=*/true, target, &suggestions).ok();
    const size_t with_sums = suggestions.size();  // they come first
    SLUICE_RETURN_IF_ERROR(Suggest(/*sums=*/false, target, &suggestions));
    const std::string key = Key(suggestions.size());
    if (!spec_.deterministic) {
      const auto kept = Choices().Find(key);
      if (kept && kept->suggestion < static_cast<int64_t>(suggestions.size())) {
        auto& config = suggestions[static_cast<size_t>(kept->suggestion)];
        Result<DnnPlan> plan = MakeDnnPlan(std::move(config), target);
        if (plan.ok() && plan->engine == kept->engine) {
          plan_ = *std::move(plan);
          plan_.sums = kept->suggestion < static_cast<int64_t>(with_sums);
          return {};
        }
      }
    }
    std::vector<int64_t> engines;
    for (const DnnDescriptor& config : suggestions) {
      const int64_t engine = config.get() == nullptr ? -1 : DnnEngineOf(config);
      // Engines are numbered for each kind of operations.
      engines.push_back(engines.size() < with_sums ? -2 - engine : engine);
    }
    Plans plans;
    bool any_modest = false;
    const auto make = [&](size_t i) {
      if (suggestions[i].get() == nullptr) return false;  // was tried above
      Result<DnnPlan> plan = MakeDnnPlan(std::move(suggestions[i]), target);
      if (!plan.ok()) return false;
      const bool modest = plan->workspace <= kMostWorkspace;
      any_modest |= modest;
      plan->sums = i < with_sums;
      plans.emplace(i, *std::move(plan));
      return modest;
    };
    const std::optional<Fastest> fastest = Search(engines, make, plans);
    if (!fastest && any_modest) {
      return Unimplemented("none of cuDNN's plans for this convolution runs");
    }
    // Where no plan can do with little scratch memory, the first that can do.
    if (!fastest && plans.empty()) {
      return Unimplemented("cuDNN has no engine for this convolution");
    }
    const auto chosen =
        fastest ? plans.find(fastest->suggestion) : plans.begin();
    plan_ = std::move(chosen->second);
    if (fastest && fastest->measured) {
      Choices().Keep(key, {static_cast<int64_t>(chosen->first), plan_.engine});
    }
    return {};
  }

  size_t workspace_bytes() const override { return WorkspaceFor(plan_); }

  Status Run(const KernelContext& c) override {
    const Status status = RunPlan(c, plan_, pack_);
    return status.ok() ? status : status.WithContext("'" + spec_.node + "'");
  }

 private:
  using Plans = std::map<size_t, DnnPlan>;  // by suggestion
  // Operands as they were last described, since most runs have the same.
  struct Pack {
    DnnOperands operands;
    DnnDescriptor descriptor;
  };

  // Everything the choice depends on.
  // A choice is a place among the suggestions: of as many, by the same driver.
  std::string Key(size_t suggestions) const {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const ConvGeometry& g = conv_.geometry;
    const auto axis = [](const WindowDim& d) {
      return fmt::format("{} {} {} {} {} {} {}", d.input, d.output, d.window,
                         d.stride, d.dilation, d.pad_before, d.pad_after);
    };
    return fmt::format(
        "{}: {} {}{}{}{}{}, {} images, {} groups of {} to {}, "
        "{}, {}; {} plans, driver {}",
        device_->name(), spec_.op, NameOf(conv_.dtype),
        spec_.tf32 ? " tf32" : "", conv_.bias ? " bias" : "",
        conv_.addend ? " addend" : "", conv_.relu ? " relu" : "", g.images,
        g.groups, g.in, g.out, axis(g.h), axis(g.w), suggestions, driver);
  }

  // Sums of ours are made when the plan has run.
  size_t WorkspaceFor(const DnnPlan& plan) const {
    return filter_bytes_ +
           std::max(plan.workspace, plan.sums ? 0 : sums_bytes_) +
           kScratchAlignment;
  }

  int64_t Rows() const {
    const ConvGeometry& g = conv_.geometry;
    return g.images * g.h.output * g.w.output;
  }

  DnnConv With(bool sums) const {
    DnnConv conv = conv_;
    conv.sums = sums;
    return conv;
  }

  // Appends what cuDNN suggests with or without sums.
  Status Suggest(bool sums, const DnnTarget& target,
                 std::vector<DnnDescriptor>* suggestions) {
    DnnConvGraph& graph = sums ? graph_with_sums_ : graph_;
    SLUICE_ASSIGN_OR_RETURN(graph, DnnConvGraph::Make(With(sums), target));
    for (DnnDescriptor& config : DnnSuggestions(
             graph, target,
             {.deterministic = spec_.deterministic, .tf32 = spec_.tf32})) {
      suggestions->push_back(std::move(config));
    }
    return {};
  }

  // The fastest on operands of our own, each time from a cold L2 cache, as in a
  // step; where the same bits are wanted in every run, the first that runs on
  // them. Where there is no memory for them, or for its scratch, the first that
  // can be made.
  std::optional<Fastest> Search(const std::vector<int64_t>& engines,
                                const std::function<bool(size_t)>& make,
                                const Plans& plans) {
    Bench bench;
    Status ready = bench.Open();
    std::vector<void*> memory;
    for (const auto* types : {&spec_.inputs, &spec_.outputs}) {
      for (const TensorType& type : *types) {
        if (!ready.ok()) break;
        const Result<void*> allocated = bench.Allocate(type.bytes());
        ready = allocated.status();
        memory.push_back(allocated.ok() ? *allocated : nullptr);
      }
    }
    if (!ready.ok()) {
      return FirstThatRuns(engines.size(), {make, [](size_t) { return 0.0; }});
    }
    void* scratch = nullptr;
    size_t scratch_bytes = 0;
    std::optional<Fastest> untried;  // for lack of memory alone
    StepContext step;
    step.stream = bench.stream();
    const auto time = [&](size_t i) -> double {
      const DnnPlan& plan = plans.at(i);
      if (WorkspaceFor(plan) > scratch_bytes) {
        bench.Free(scratch);
        scratch_bytes = 0;
        const Result<void*> more = bench.Allocate(WorkspaceFor(plan));
        scratch = more.ok() ? *more : nullptr;
        if (scratch == nullptr) {
          // Which one is taken may not depend on what else is in memory.
          if (spec_.deterministic) return 0;
          if (!untried) untried = Fastest{i, false};
          return std::numeric_limits<double>::infinity();
        }
        scratch_bytes = WorkspaceFor(plan);
      }
      const KernelContext context(
          memory.data(), memory.data() + spec_.inputs.size(), scratch, &step);
      Pack pack;
      return static_cast<double>(
                 bench.Measure([&] { return RunPlan(context, plan, pack); })) *
             1e-3;
    };
    const Trial trial = {make, time};
    const std::optional<Fastest> fastest =
        spec_.deterministic
            ? FirstThatRuns(engines.size(), trial)
            : SearchFastest(engines, trial, SearchBudget::Global());
    return fastest ? fastest : untried;
  }

  Status RunPlan(const KernelContext& c, const DnnPlan& plan, Pack& pack) {
    char* const scratch = AlignScratch(c.workspace());
    const auto in = [&](int i) { return const_cast<void*>(c.input<void>(i)); };
    void* const filter = !ohwi_                            ? scratch
                         : conv_.pass == ConvPass::kFilter ? c.output<void>(0)
                                                           : in(1);
    DnnOperands operands{.filter = filter};
    switch (conv_.pass) {
      case ConvPass::kForward:
        operands.x = in(0);
        operands.y = c.output<void>(0);
        if (conv_.bias) operands.bias = in(2);
        if (conv_.addend) operands.addend = in(3);
        if (plan.sums) {
          operands.sum = c.output<void>(1);
          operands.squares = c.output<void>(2);
        }
        break;
      case ConvPass::kInput:
        operands.x = c.output<void>(0);
        operands.y = in(0);
        break;
      case ConvPass::kFilter:
        operands.x = in(0);
        operands.y = in(1);
        break;
    }
    if (plan.workspace > 0) operands.workspace = scratch + filter_bytes_;
    if (pack.descriptor.get() == nullptr || pack.operands != operands) {
      SLUICE_ASSIGN_OR_RETURN(pack.descriptor,
                              MakeDnnPack(With(plan.sums), operands));
      pack.operands = operands;
    }
    const ConvGeometry& g = conv_.geometry;
    const int64_t rows = g.taps() * g.in, columns = g.y_channels();
    if (ohwi_) {
      SLUICE_RETURN_IF_ERROR(
          device_->Execute(plan.plan, pack.descriptor, StreamOf(c)));
      if (!sums_ || plan.sums) return {};
      return FindChannelSums(conv_.dtype)(Rows(), columns, c.output<void>(0),
                                          c.output<void>(1), c.output<void>(2),
                                          scratch + filter_bytes_, StreamOf(c));
    }
    if (conv_.pass == ConvPass::kFilter) {
      SLUICE_RETURN_IF_ERROR(
          device_->Execute(plan.plan, pack.descriptor, StreamOf(c)));
      return Transpose(columns, rows, filter, c.output<void>(0), StreamOf(c));
    }
    SLUICE_RETURN_IF_ERROR(
        Transpose(rows, columns, in(1), filter, StreamOf(c)));
    return device_->Execute(plan.plan, pack.descriptor, StreamOf(c));
  }

  // HWIO, a matrix of a row for each tap and input channel, to OHWI and back.
  Status Transpose(int64_t rows, int64_t columns, const void* from, void* to,
                   cudaStream_t stream) const {
    StridedMove move;
    move.Add(columns, rows, 1);
    move.Add(rows, 1, columns);
    return CopyStrided("filter of Conv2D", move, conv_.dtype, from, to, stream);
  }

  const KernelSpec spec_;
  DnnConv conv_;
  bool ohwi_ = false;        // whether the filter is
  size_t filter_bytes_ = 0;  // of its copy, with what aligns the next
  bool sums_ = false;        // whether they are asked for
  size_t sums_bytes_ = 0;    // of scratch memory, for sums of ours
  DnnDevice* device_ = nullptr;
  DnnConvGraph graph_, graph_with_sums_;
  DnnPlan plan_;
  Pack pack_;
};

// What cuDNN does not take is our own kernel's, which must serve what is tried
// here: it is made where cuDNN has nothing.
bool Supports(const KernelSpec& spec) {
  return IsServedConv(spec) && DnnTakes(*ConvGeometryOf(spec)) &&
         Dnn() != nullptr;
}

Result<KernelPtr> Make(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, ConvGeometryOf(spec));
  auto kernel = std::make_unique<DnnConvolution>(spec, geometry);
  const Status status = kernel->Prepare();
  if (status.ok()) return KernelPtr(std::move(kernel));
  if (status.code() == Code::kUnavailable) {
    static std::atomic<bool> told = false;
    NoteOnce(told,
             status.message() + "; Sluice's own convolutions are used, slower");
    return Unimplemented(status.message());
  }
  if (status.code() == Code::kUnimplemented) return status;
  return status.WithContext("'" + spec.node + "'");
}

}  // namespace

void RegisterCudnnConvKernels(KernelTable& table) {
  for (const char* op :
       {"Conv2D", "Conv2DBias", "Conv2DBiasAdd", "Conv2DBackpropInput",
        "Conv2DBackpropFilter", "DepthwiseConv2D",
        "DepthwiseConv2DBackpropInput", "DepthwiseConv2DBackpropFilter",
        "OhwiConv2D", "OhwiConv2DWithSums", "OhwiConv2DBackpropInput",
        "OhwiConv2DBackpropFilter"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .priority = kPriority,
                    .provider = "cudnn",
                    .supports = Supports,
                    .dtypes = DTypeSet(DType::kFloat32) | DType::kFloat16 |
                              DType::kBFloat16,
                    .make = Make});
  }
}

}  // namespace sluice::cuda
