// The launches of normalisations and their gradients.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/semantics/row_run.h"
#include "graph/compile/device_type_names.h"
#include "graph/compile/launch_parts.h"

namespace sluice {
namespace {

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

}  // namespace

void CountBatchNorm(const Node& node, WorkKind kind, Launches* launches) {
  ForwardNorm(node, kind, /*by_sums=*/false, launches);
}
void CountBatchNormBySums(const Node& node, WorkKind kind, Launches* launches) {
  ForwardNorm(node, kind, /*by_sums=*/true, launches);
}

void CountBatchNormInference(const Node& node, WorkKind kind,
                             Launches* launches) {
  launches->push_back({kind, "FactorKernel", {In(1), In(4)}});
  launches->push_back(Normalize(node, kind));
  launches->back().moved.push_back(In(3));
}

// x, scale, mean, inv_std, the mask where there is one, and one or two terms.
// Where the gradient of an addend is asked for, or there are two terms, what
// is behind the mask is kept, for the last pass to read, in dx if nowhere else.
void CountBatchNormGrad(const Node& node, WorkKind kind, Launches* launches) {
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

void CountLayerNormGrad(const Node& node, WorkKind kind, Launches* launches) {
  const DType dtype = node.input(0).dtype();
  const int dy = node.num_inputs() - 1;
  launches->push_back({kind,
                       Named("LayerNormGradKernel", dtype,
                             {HasRowRuns(node.input(0).shape()[-1])}),
                       {In(0), In(1), In(2), In(3), In(dy), Out(0)}});
  launches->push_back(
      {kind,
       Named("SegmentSumsKernel", dtype, {IsWhole(node, PackOf(dtype))}),
       {In(0), In(2), In(3), In(dy)}});
  launches->push_back({kind, "ColumnSumsKernel", {Out(1), Out(2)}});
}

}  // namespace sluice
