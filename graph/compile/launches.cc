#include "graph/compile/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/ceil_div.h"
#include "engine/semantics/filter_layout.h"
#include "engine/semantics/reduce_plan.h"
#include "engine/semantics/sum_cut.h"
#include "graph/compile/device_type_names.h"

namespace sluice {
namespace {

using Launches = std::vector<KernelLaunch>;
using Count = void (*)(const Node& node, WorkKind kind, Launches* launches);

int64_t PackOf(DType dtype) {
  return 16 / static_cast<int64_t>(SizeOf(dtype));
}

Moved In(int i, int reads = 1, int writes = 0) {
  return {false, i, reads, writes};
}
Moved Out(int i, int writes = 1, int reads = 0) {
  return {true, i, reads, writes};
}

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

// --- Normalisation -----------------------------------------------------------

bool IsWhole(const Node& node, int64_t pack) {
  return node.input(0).shape()[-1] % pack == 0;
}
std::string Named(std::string_view kernel, DType dtype,
                  std::initializer_list<bool> flags) {
  std::string name = fmt::format("{}<{}", kernel, DeviceTypeName(dtype));
  for (bool flag : flags) name += flag ? ", true" : ", false";
  return name + ">";
}

// y, the addend and the mask of `Normalize`, behind what makes its factor.
// `sums`: how many inputs are.
KernelLaunch Normalize(const Node& node, WorkKind kind, int sums = 0) {
  const bool add = node.num_inputs() - sums > 5, mask = node.op().relu_mask;
  const DType dtype = node.input(0).dtype();
  KernelLaunch launch = {kind,
                         IsWhole(node, 8)
                             ? Named("NormalizeKernel", dtype, {add, mask})
                             : Named("NormalizeAnyKernel", dtype, {}),
                         {In(0), In(2), Out(0)}};
  if (add) launch.moved.push_back(In(5));
  if (mask) launch.moved.push_back(Out(node.num_outputs() - 1));
  return launch;
}

// By x alone, or by sums that the last two inputs are, which are taken to be
// sound.
void ForwardNorm(const Node& node, WorkKind kind, bool by_sums,
                 Launches* launches) {
  const DType dtype = node.input(0).dtype();
  const int sums = by_sums ? 2 : 0, first = node.num_inputs() - sums;
  KernelLaunch moments = {kind, Named("MomentsKernel", dtype,
                                      {IsWhole(node, PackOf(dtype)), by_sums})};
  KernelLaunch statistics = {
      kind,
      fmt::format("StatisticsKernel<{}, {}>", ComputeTypeName(dtype), by_sums),
      {In(1), In(3), In(4), Out(1), Out(2), Out(3), Out(4)}};
  if (by_sums) {
    for (KernelLaunch* launch : {&moments, &statistics}) {
      launch->moved.push_back(In(first));
      launch->moved.push_back(In(first + 1));
    }
  } else {
    moments.moved.push_back(In(0));
  }
  launches->push_back(std::move(moments));
  launches->push_back(std::move(statistics));
  launches->push_back(Normalize(node, kind, sums));
  launches->back().moved.push_back(Out(1, 0, 1));  // the mean
}

void BatchNorm(const Node& node, WorkKind kind, Launches* launches) {
  ForwardNorm(node, kind, /*by_sums=*/false, launches);
}
void BatchNormBySums(const Node& node, WorkKind kind, Launches* launches) {
  ForwardNorm(node, kind, /*by_sums=*/true, launches);
}

// Also BatchNormApply.
void BatchNormInference(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back({kind, "FactorKernel", {In(1), In(4)}});
  launches->push_back(Normalize(node, kind));
  launches->back().moved.push_back(In(3));
}

// x, scale, mean, inv_std, the mask where there is one, and one or two terms.
// Where the gradient of an addend is asked for, or there are two terms, what
// is behind the mask is kept, for the last pass to read, in dx if nowhere else.
void BatchNormGrad(const Node& node, WorkKind kind, Launches* launches) {
  const DType dtype = node.input(0).dtype();
  const bool mask = node.input(4).dtype() == DType::kUInt8;  // not yet dy
  const int dy = mask ? 5 : 4;
  const bool two = node.num_inputs() > dy + 1, g = node.num_outputs() > 3;
  const bool kept = two || g, whole = IsWhole(node, PackOf(dtype));
  const int keep = g ? 3 : 0;
  KernelLaunch sums = {
      kind,
      Named("GradSumsKernel", dtype, {whole, whole && mask, whole && two}),
      {In(0), In(2), In(dy)}};
  if (two) sums.moved.push_back(In(dy + 1));
  // A byte, for eight elements, is read with each pack of them.
  const int packs = std::max(1, static_cast<int>(SizeOf(dtype)) / 2);
  if (mask) sums.moved.push_back(In(4, packs));
  if (kept) sums.moved.push_back(Out(keep));
  launches->push_back(std::move(sums));
  launches->push_back(
      {kind,
       fmt::format("CoefficientsKernel<{}>", ComputeTypeName(dtype)),
       {In(1), In(3), Out(1), Out(2)}});
  const bool masks = mask && !kept;
  KernelLaunch last = {kind,
                       IsWhole(node, 8) ? Named("GradKernel", dtype, {masks})
                                        : Named("GradAnyKernel", dtype, {}),
                       {In(0), In(2), Out(0)}};
  last.moved.push_back(kept ? Out(keep, 0, 1) : In(dy));
  if (masks) last.moved.push_back(In(4));
  launches->push_back(std::move(last));
}

void LayerNormGrad(const Node& node, WorkKind kind, Launches* launches) {
  const DType dtype = node.input(0).dtype();
  const int dy = node.num_inputs() - 1;
  launches->push_back({kind,
                       Named("LayerNormGradKernel", dtype, {}),
                       {In(0), In(1), In(2), In(3), In(dy), Out(0)}});
  launches->push_back(
      {kind,
       Named("SegmentSumsKernel", dtype, {IsWhole(node, PackOf(dtype))}),
       {In(0), In(2), In(3), In(dy)}});
  launches->push_back({kind, "ColumnSumsKernel", {Out(1), Out(2)}});
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

void AddN(const Node& node, WorkKind kind, Launches* launches) {
  launches->push_back(
      Once(node, kind, Named("AddNKernel", node.input(0).dtype(), {})));
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
  Pool(node, kind, "PoolKernel", "SumSoFar, ", launches);
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

struct Row {
  std::string_view op;
  WorkKind kind;
  Count count = One;
};
constexpr Row kRows[] = {
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
    {"MatMulBias", WorkKind::kProduct, Library},
    {"BatchMatMul", WorkKind::kProduct, Library},
    {"BatchNorm", WorkKind::kBatchNorm, BatchNorm},
    {"BatchNormRelu", WorkKind::kBatchNorm, BatchNorm},
    {"BatchNormAddRelu", WorkKind::kBatchNorm, BatchNorm},
    {"BatchNormBySums", WorkKind::kBatchNorm, BatchNormBySums},
    {"BatchNormReluBySums", WorkKind::kBatchNorm, BatchNormBySums},
    {"BatchNormAddReluBySums", WorkKind::kBatchNorm, BatchNormBySums},
    {"BatchNormInference", WorkKind::kBatchNorm, BatchNormInference},
    {"BatchNormApply", WorkKind::kBatchNorm, BatchNormInference},
    {"BatchNormApplyRelu", WorkKind::kBatchNorm, BatchNormInference},
    {"BatchNormApplyAddRelu", WorkKind::kBatchNorm, BatchNormInference},
    {"BatchNormGrad", WorkKind::kBatchNormGrad, BatchNormGrad},
    {"BatchNormReluGrad", WorkKind::kBatchNormGrad, BatchNormGrad},
    {"BatchNormAddReluGrad", WorkKind::kBatchNormGrad, BatchNormGrad},
    {"LayerNormGrad", WorkKind::kOther, LayerNormGrad},
    {"AddN", WorkKind::kElementwise, AddN},
    {"BiasAdd", WorkKind::kElementwise, Elementwise},
    {"Fused", WorkKind::kElementwise, Fused},
    {"FusedSum", WorkKind::kElementwise, Fused},
    {"MaxPool", WorkKind::kPooling, MaxPool},
    {"MaxPoolGrad", WorkKind::kPooling, OtherPool},
    {"MaxPoolGradGrad", WorkKind::kPooling, OtherPool},
    {"MaxPoolGradWithArgmax", WorkKind::kPooling, OtherPool},
    {"MaxPoolWithArgmax", WorkKind::kPooling, OtherPool},
    {"AvgPool", WorkKind::kPooling, AvgPool},
    {"AvgPoolGrad", WorkKind::kPooling, OtherPool},
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
    {"Any", WorkKind::kOther, Reduce},
    {"All", WorkKind::kOther, Reduce},
    {"ScatterAdd", WorkKind::kOther, ScatterAdd},
    {"SumRows", WorkKind::kOther, SumRows},
    {"SendWait", WorkKind::kOther, Nothing},
    {"RecvStart", WorkKind::kOther, Nothing},
    {"RecvWait", WorkKind::kOther, Nothing},
    {"AllReduceStart", WorkKind::kOther, Nothing},
    {"AllReduceWait", WorkKind::kOther, Nothing},
};

// Of an op without a row: a launch that moves every operand once.
Row RowOf(const Node& node) {
  const std::string_view op = node.op().name;
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& r) { return r.op == op; });
  if (row != std::end(kRows)) return *row;
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
  const Row row = RowOf(node);
  row.count(node, row.kind, &launches);
  return launches;
}

}  // namespace sluice
