#include "graph/compile/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/ceil_div.h"
#include "engine/semantics/filter_layout.h"
#include "engine/semantics/pool_run.h"
#include "engine/semantics/reduce_plan.h"
#include "engine/semantics/sum_cut.h"
#include "engine/semantics/window.h"
#include "graph/compile/device_type_names.h"
#include "graph/compile/launch_parts.h"

namespace sluice {
namespace {

using Count = void (*)(const Node& node, WorkKind kind, Launches* launches);

// Every operand once. What an op updates is read, if `reads_updated`, and
// written.
KernelLaunch Once(const Node& node, WorkKind kind, std::string kernel,
                  bool reads_updated = true) {
  KernelLaunch launch = {kind, std::move(kernel)};
  for (int i = 0; i < node.num_inputs(); ++i) {
    const bool updated = i < node.mutates();
    launch.moved.push_back(In(i, updated && !reads_updated ? 0 : 1, updated));
  }
  for (int i = node.mutates() > 0 ? 1 : 0; i < node.num_outputs(); ++i) {
    launch.moved.push_back(Out(i));
  }
  if (node.op().multiply_adds != nullptr) {
    launch.multiply_adds = node.op().multiply_adds(node);
  }
  return launch;
}

void One(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(Once(node, kind, node.op().name));
}

void Library(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(Once(node, kind, std::string(kLibrary)));
}

// cuBLASLt is never asked for a ReLU, which is a kernel of ours behind it.
void BiasedProduct(const Node& node, WorkKind kind, Launches* launches) {
  Library(node, kind, launches);
  if (!node.attrs().Bool("relu")) return;
  const std::string_view t = DeviceTypeName(node.output_type(0).dtype);
  launches->push_back({WorkKind::kElementwise,
                       fmt::format("UnaryKernel<scalar::Relu, {}, {}>", t, t),
                       {Out(0, 1, 1)}});
}

void Copied(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back({kind, std::string(kMemcpy), {In(0, 1)}});
  const int64_t written = static_cast<int64_t>(node.input(0).type().bytes());
  launches->back().extra_bytes = written;
}

// cuDNN's filters are OHWI.
void Turned(const TensorType& filter, Launches* launches) {
  launches->push_back(
      {.kind = WorkKind::kCopy,
       .kernel = "TransposeKernel",
       .extra_bytes = 2 * static_cast<int64_t>(filter.bytes())});
}

void Convolution(const Node& node, WorkKind kind, Launches* launches) {
  if (kind == WorkKind::kFilterGradient) {
    Library(node, kind, launches);
    Turned(node.output_type(0), launches);
  } else {
    Turned(node.input(1).type(), launches);
    Library(node, kind, launches);
  }
}

// --- Elements ----------------------------------------------------------------

void Elementwise(const Node& node, WorkKind kind, Launches* launches) {
  const std::string_view scalar = node.op().ScalarFunction(node.attrs());
  const DType dtype = node.input(0).dtype();
  const std::string_view t = DeviceTypeName(dtype);
  const std::string_view y = DeviceTypeName(node.output_type(0).dtype);
  std::string name = node.op().name;
  if (!scalar.empty() && node.num_inputs() == 1) {
    name = fmt::format("UnaryKernel<scalar::{}, {}, {}>", scalar, t, y);
  } else if (!scalar.empty() && node.num_inputs() == 2) {
    name = fmt::format("BinaryKernel<scalar::{}, {}, {}, {}>", scalar, t, y,
                       PackOf(dtype));
  }
  launches->push_back(Once(node, kind, name));
}

// A launch takes so many terms, a further one the sum so far as one of them
// (kernels/cuda/ops/elementwise/elementwise.h). Sums of halves are kept in
// float32 between launches.
void AddN(const Node& node, WorkKind kind, Launches* launches) {
  constexpr int kMostTerms = 256;
  const TensorType& y = node.output_type(0);
  const DType wide = ComputeDType(y.dtype);
  const std::string_view t = DeviceTypeName(y.dtype);
  for (int done = 0; done < node.num_inputs();) {
    const bool begins = done == 0;
    const int end =
        std::min(node.num_inputs(), done + kMostTerms - (begins ? 0 : 1));
    const bool ends = end == node.num_inputs();
    KernelLaunch& launch = launches->emplace_back();
    launch.kind = kind;
    launch.kernel = fmt::format("AddNKernel<{}, {}, {}>", t,
                                begins ? t : DeviceTypeName(wide),
                                ends ? t : DeviceTypeName(wide));
    for (; done < end; ++done) launch.moved.push_back(In(done));
    const bool aside = wide != y.dtype;  // where sums are kept
    const int reads = begins || aside ? 0 : 1, writes = ends || !aside ? 1 : 0;
    launch.moved.push_back(Out(0, writes, reads));
    if (aside) {
      launch.extra_bytes = ((begins ? 0 : 1) + (ends ? 0 : 1)) *
                           y.shape.elements() *
                           static_cast<int64_t>(SizeOf(wide));
    }
  }
}

void Cast(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(Once(
      node, kind,
      fmt::format("CastKernel<{}, {}>", DeviceTypeName(node.input(0).dtype()),
                  DeviceTypeName(node.output_type(0).dtype))));
}

// A launch takes so many arrays (kernels/cuda/device/array_list.h).
constexpr int64_t kMostArrays = 256;

// Arrays that are inputs from `first` on, and outputs where there is one for
// each, in lists.
void Lists(const Node& node, WorkKind kind, const std::string& kernel,
           int first, int count, Launches* launches,
           int64_t most = kMostArrays) {
  for (int i = 0; i < count; ++i) {
    if (i % most == 0) launches->push_back({kind, kernel});
    launches->back().moved.push_back(In(first + i));
    if (node.mutates() == 0 && node.num_outputs() == count)
      launches->back().moved.push_back(Out(i));
  }
}

void CastList(const Node& node, WorkKind kind, Launches* launches) {
  Lists(node, kind, Named("CastListKernel", node.output_type(0).dtype, {}), 0,
        node.num_inputs(), launches);
}

void TurnFilters(const Node& node, WorkKind kind, Launches* launches) {
  Lists(node, kind, "TurnFiltersKernel", 0, node.num_inputs(), launches,
        kMostFilters);
}

void AssignList(const Node& node, WorkKind kind, Launches* launches) {
  const int variables = static_cast<int>(node.attrs().Int("variables"));
  Lists(node, kind, "AssignListKernel", variables, variables, launches);
  for (int i = 0; i < variables; ++i) {
    (*launches)[static_cast<size_t>(i / kMostArrays)].moved.push_back(
        In(i, 0, 1));
  }
}

void Assign(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(Once(node, kind, "AssignKernel",
                           /*reads_updated=*/false));
}

// The verdict is written first, and again where something is not finite.
void AllFinite(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back({kind, "FillKernel", {Out(0)}});
  const int first = node.op().inputs.size() - 1;  // a scale is before them
  Lists(node, kind, "AllFiniteKernel", first, node.num_inputs() - first,
        launches);
}

void Optimizer(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(
      Once(node, kind,
           fmt::format("Optimizer{}Kernel<optimizer::{}, {}>",
                       node.op().scatters ? "Rows" : "", node.op().rule,
                       DeviceTypeName(node.input(0).dtype()))));
}

// By a generated kernel.
void Fused(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(Once(node, kind, "generated"));
  if (!node.attrs().Has("sum")) return;
  const int pack = static_cast<int>(PackOf(node.input(0).dtype()));
  const int64_t results =
      node.output_type(node.num_outputs() - 1).shape.elements();
  const int64_t other = node.attrs().ShapeOf("shape").elements() / results;
  const SumCut cut = node.attrs().String("sum") == "leading"
                         ? CutLeadingSum(other, results, pack)
                         : CutTrailingSum(results, other, pack);
  if (cut.segments > 1) launches->push_back({kind, "AddSegmentsKernel"});
}

// --- Others ------------------------------------------------------------------

// "name<float, true>"; `so_far`, if any, between the two: "SumSoFar, ".
void Pool(const Node& node, WorkKind kind, std::string_view name,
          std::string_view so_far, Launches* launches) {
  const DType dtype = node.input(0).dtype();
  launches->push_back(
      Once(node, kind,
           fmt::format("{}<{}, {}{}>", name, DeviceTypeName(dtype), so_far,
                       IsWhole(node, PackOf(dtype)))));
}
void MaxPool(const Node& node, WorkKind kind, Launches* launches) {
  Pool(node, kind, "PoolKernel", "LargestSoFar, ", launches);
}
void AvgPool(const Node& node, WorkKind kind, Launches* launches) {
  const std::vector<int64_t>& window = node.attrs().Ints("window");
  const bool runs = HasPoolRuns(window[0], window[1]);
  Pool(node, kind, "PoolKernel", runs ? "SumOfRuns, " : "SumSoFar, ", launches);
}
void PoolGrad(const Node& node, WorkKind kind, Launches* launches) {
  const Shape& x = node.output_type(0).shape;  // its gradient is like it
  const std::vector<int64_t>& window = node.attrs().Ints("window");
  const Result<Window2D> w = WindowOf(node.attrs(), x, window[0], window[1]);
  const bool runs = w.ok() && HasGradRuns(w->h, w->w);
  Pool(node, kind, std::string(node.op().name) + "Kernel",
       runs ? "SumOfRuns, " : "SumSoFar, ", launches);
}
void OtherPool(const Node& node, WorkKind kind, Launches* launches) {
  Pool(node, kind, std::string(node.op().name) + "Kernel", "", launches);
}

void Reduce(const Node& node, WorkKind kind, Launches* launches) {
  const Shape& x = node.input(0).shape();
  const ReducePlan plan(
      x, ReducedDims(x, node.output_type(0).shape, node.attrs()));
  for (size_t i = 0; i < plan.passes.size(); ++i) {
    launches->push_back({kind, "reduction"});
    if (i == 0) launches->back().moved.push_back(In(0));
  }
  launches->back().moved.push_back(Out(0));
}

// A copy of each part.
void Join(const Node& node, WorkKind kind, Launches* launches) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    launches->push_back({kind, "CopyKernel", {In(i)}});
    launches->back().extra_bytes =
        static_cast<int64_t>(node.input(i).type().bytes());
  }
}
void Cut(const Node& node, WorkKind kind, Launches* launches) {
  for (int i = 0; i < node.num_outputs(); ++i) {
    launches->push_back({kind, "CopyKernel", {Out(i)}});
    launches->back().extra_bytes =
        static_cast<int64_t>(node.output_type(i).bytes());
  }
}
// One of the whole, then a part of it.
void FillAndCopy(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back({kind, "FillKernel", {Out(0)}});
  launches->push_back({kind, "CopyKernel", {In(0)}});
  launches->back().extra_bytes =
      static_cast<int64_t>(node.input(0).type().bytes());
}

// Sorts the indices that input i is, in chunks that are then merged.
void SortRows(const Node& node, int i, WorkKind kind, Launches* launches) {
  constexpr int64_t kSorted = 256;
  launches->push_back({kind, "SortChunksKernel", {In(i)}});
  const int64_t slices = node.input(i).shape().elements();
  for (int64_t width = kSorted; width < slices; width *= 2) {
    launches->push_back({kind, "MergeKernel"});
  }
}

void SumRows(const Node& node, WorkKind kind, Launches* launches) {
  SortRows(node, 0, kind, launches);
  launches->push_back({kind, "SumRowsKernel", {In(1), Out(0), Out(1)}});
}

// Of the variable and its slots no more moves than the slices' bytes.
void OptimizerRows(const Node& node, WorkKind kind, Launches* launches) {
  const int slices = node.op().inputs.size() - 3;
  SortRows(node, slices + 1, kind, launches);
  Optimizer(node, kind, launches);
  launches->back().moved = {In(slices, 1 + node.mutates(), node.mutates())};
}

// x is copied, the indices are sorted.
void ScatterAdd(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back({kind, "CopyKernel", {In(0), Out(0)}});
  SortRows(node, 1, kind, launches);
  launches->push_back({kind, "RunsKernel", {In(2)}});
  launches->push_back({kind, "AddKernel", {In(2)}});
}

// What comes from other processes is counted where it is sent.
void Nothing(const Node&, WorkKind, Launches*) {}

struct OpLaunches {
  std::string_view op;
  WorkKind kind;
  Count count = One;
};
constexpr OpLaunches kRows[] = {
    {"Conv2D", WorkKind::kConvolution, Convolution},
    {"Conv2DBias", WorkKind::kConvolution, Convolution},
    {"Conv2DBiasAdd", WorkKind::kConvolution, Convolution},
    {"DepthwiseConv2D", WorkKind::kConvolution, Convolution},
    {"Conv2DBackpropInput", WorkKind::kDataGradient, Convolution},
    {"DepthwiseConv2DBackpropInput", WorkKind::kDataGradient, Convolution},
    {"Conv2DBackpropFilter", WorkKind::kFilterGradient, Convolution},
    {"DepthwiseConv2DBackpropFilter", WorkKind::kFilterGradient, Convolution},
    {"OhwiConv2D", WorkKind::kConvolution, Library},
    {"OhwiConv2DWithSums", WorkKind::kConvolution, Library},
    {"OhwiConv2DBackpropInput", WorkKind::kDataGradient, Library},
    {"OhwiConv2DBackpropFilter", WorkKind::kFilterGradient, Library},
    {"MatMul", WorkKind::kProduct, Library},
    {"MatMulAdd", WorkKind::kProduct, Library},
    {"MatMulBias", WorkKind::kProduct, BiasedProduct},
    {"BatchMatMul", WorkKind::kProduct, Library},
    {"BatchNorm", WorkKind::kBatchNorm, CountBatchNorm},
    {"BatchNormRelu", WorkKind::kBatchNorm, CountBatchNorm},
    {"BatchNormAddRelu", WorkKind::kBatchNorm, CountBatchNorm},
    {"BatchNormBySums", WorkKind::kBatchNorm, CountBatchNormBySums},
    {"BatchNormReluBySums", WorkKind::kBatchNorm, CountBatchNormBySums},
    {"BatchNormAddReluBySums", WorkKind::kBatchNorm, CountBatchNormBySums},
    {"BatchNormInference", WorkKind::kBatchNorm, CountBatchNormInference},
    {"BatchNormApply", WorkKind::kBatchNorm, CountBatchNormInference},
    {"BatchNormApplyRelu", WorkKind::kBatchNorm, CountBatchNormInference},
    {"BatchNormApplyAddRelu", WorkKind::kBatchNorm, CountBatchNormInference},
    {"BatchNormGrad", WorkKind::kBatchNormGrad, CountBatchNormGrad},
    {"BatchNormReluGrad", WorkKind::kBatchNormGrad, CountBatchNormGrad},
    {"BatchNormAddReluGrad", WorkKind::kBatchNormGrad, CountBatchNormGrad},
    {"LayerNormGrad", WorkKind::kOther, CountLayerNormGrad},
    {"AddN", WorkKind::kElementwise, AddN},
    {"BiasAdd", WorkKind::kElementwise, Elementwise},
    {"Fused", WorkKind::kElementwise, Fused},
    {"FusedSum", WorkKind::kElementwise, Fused},
    {"MaxPool", WorkKind::kPooling, MaxPool},
    {"MaxPoolGrad", WorkKind::kPooling, PoolGrad},
    {"MaxPoolGradGrad", WorkKind::kPooling, OtherPool},
    {"MaxPoolGradWithArgmax", WorkKind::kPooling, OtherPool},
    {"MaxPoolWithArgmax", WorkKind::kPooling, OtherPool},
    {"AvgPool", WorkKind::kPooling, AvgPool},
    {"AvgPoolGrad", WorkKind::kPooling, PoolGrad},
    {"Cast", WorkKind::kCopy, Cast},
    {"CastPad", WorkKind::kCopy},
    {"CastList", WorkKind::kCopy, CastList},
    {"TurnFilters", WorkKind::kCopy, TurnFilters},
    {"Assign", WorkKind::kCopy, Assign},
    {"AssignList", WorkKind::kCopy, AssignList},
    {"Copy", WorkKind::kCopy, Copied},
    {"Fetch", WorkKind::kCopy, Copied},
    {"SendStart", WorkKind::kCopy, Copied},
    {"Transpose", WorkKind::kCopy},
    {"Slice", WorkKind::kCopy, Cut},
    {"StridedSlice", WorkKind::kCopy, Cut},
    {"Concat", WorkKind::kCopy, Join},
    {"Stack", WorkKind::kCopy, Join},
    {"ConcatGrad", WorkKind::kCopy, Cut},
    {"Split", WorkKind::kCopy, Cut},
    {"Unstack", WorkKind::kCopy, Cut},
    {"Pad", WorkKind::kCopy, FillAndCopy},
    {"StridedSliceGrad", WorkKind::kCopy, FillAndCopy},
    {"AllFinite", WorkKind::kOptimizer, AllFinite},
    {"AllFiniteScaled", WorkKind::kOptimizer, AllFinite},
    {"Sum", WorkKind::kOther, Reduce},
    {"SumTo", WorkKind::kOther, Reduce},
    {"Mean", WorkKind::kOther, Reduce},
    {"Prod", WorkKind::kOther, Reduce},
    {"Max", WorkKind::kOther, Reduce},
    {"Min", WorkKind::kOther, Reduce},
    {"LogSumExp", WorkKind::kOther, Reduce},
    {"L2Loss", WorkKind::kOther, Reduce},
    {"SquaredNorm", WorkKind::kOther, Reduce},
    {"Any", WorkKind::kOther, Reduce},
    {"All", WorkKind::kOther, Reduce},
    {"ScatterAdd", WorkKind::kOther, ScatterAdd},
    {"SumRows", WorkKind::kOther, SumRows},
    {"SendWait", WorkKind::kOther, Nothing},
    {"RecvStart", WorkKind::kOther, Nothing},
    {"RecvWait", WorkKind::kOther, Nothing},
};

// Of an op without a row: a launch that moves every operand once.
OpLaunches RowOf(const Node& node) {
  const std::string_view op = node.op().name;
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows),
                   [&](const OpLaunches& r) { return r.op == op; });
  if (row != std::end(kRows)) return *row;
  if (node.op().collective) return {op, WorkKind::kOther, Nothing};
  if (node.op().elementwise && node.num_inputs() > 0) {
    return {op, WorkKind::kElementwise, Elementwise};
  }
  if (node.op().rule != nullptr) {
    return {op, WorkKind::kOptimizer,
            node.op().scatters ? OptimizerRows : Optimizer};
  }
  return {op, WorkKind::kOther, One};
}

}  // namespace

std::string Named(std::string_view kernel, DType dtype,
                  std::initializer_list<bool> flags) {
  std::string name = fmt::format("{}<{}", kernel, DeviceTypeName(dtype));
  for (bool flag : flags) name += flag ? ", true" : ", false";
  return name + ">";
}

std::string_view NameOf(WorkKind kind) {
  constexpr std::array<std::string_view, kWorkKinds> kNames = {
      "convolution",
      "data_gradient",
      "filter_gradient",
      "batch_norm",
      "batch_norm_grad",
      "elementwise",
      "pooling",
      "product",
      "optimizer",
      "copy",
      "other"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t KernelLaunch::Bytes(const Node& node) const {
  int64_t bytes = extra_bytes;
  for (const Moved& m : moved) {
    const TensorType& type =
        m.result ? node.output_type(m.index) : node.input(m.index).type();
    bytes += (m.reads + m.writes) * static_cast<int64_t>(type.bytes());
  }
  return bytes;
}

std::vector<KernelLaunch> LaunchesOf(const Node& node) {
  Launches launches;
  if (!node.IsInstruction()) return launches;
  const OpLaunches row = RowOf(node);
  row.count(node, row.kind, &launches);
  return launches;
}

}  // namespace sluice
