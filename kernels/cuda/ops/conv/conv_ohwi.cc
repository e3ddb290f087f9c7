// The kernels of ops with OHWI filters. Our own convolutions read HWIO, so
// there filters are turned in the workspace; cuDNN's, which register above,
// read them as they are. The one with sums reads what it has made once more.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/semantics/filter_layout.h"
#include "engine/semantics/ohwi_convolution.h"
#include "kernels/cuda/device/array_list.h"
#include "kernels/cuda/ops/conv/conv.h"
#include "kernels/cuda/ops/conv/turn_filters.h"
#include "kernels/cuda/ops/norm/channel_sums.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

constexpr size_t kAligned = 256;

Result<KernelPtr> MakeTurnFilters(const KernelSpec& spec) {
  const bool from_ohwi = TurnsFromOhwi(spec.attrs.String("layout"));
  std::vector<MatrixList> lists;
  for (const TensorType& filter : spec.inputs) {
    if (lists.empty() || lists.back().count == MatrixList::kMost) {
      lists.emplace_back();
    }
    lists.back().Add(MatrixOf(filter.shape, from_ohwi));
  }
  return KernelOf(
      [lists = std::move(lists),
       launch = FindTurnFilters(spec.inputs[0].dtype, spec.outputs[0].dtype)](
          const KernelContext& c) mutable -> Status {
        return LaunchLists(
            lists,
            [&](int i, MatrixList::Matrix& matrix) {
              matrix.from = c.input<void>(i);
              matrix.to = c.output<void>(i);
            },
            [&](const MatrixList& list) { return launch(list, StreamOf(c)); });
      });
}

Result<KernelPtr> MakeOhwiConv(const KernelSpec& spec, const char* hwio) {
  return MakeOhwiConvolution(
      spec, hwio, kAligned, MakeConv, [](DType dtype, FilterMatrix matrix) {
        MatrixList list;  // of one
        list.Add(matrix);
        return [list, launch = FindTurnFilters(dtype, dtype)](
                   const void* from, void* to, const KernelContext& c) mutable {
          list.at[0].from = from;
          list.at[0].to = to;
          return launch(list, StreamOf(c));
        };
      });
}

Result<KernelPtr> MakeWithSums(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(KernelPtr made,
                          MakeOhwiConv(WithoutSums(spec), "Conv2D"));
  const TensorType& y = spec.outputs[0];
  const int64_t rows = y.shape.elements(0, 3), channels = y.shape[3];
  const size_t workspace = std::max(
      made->workspace_bytes(), ChannelSumsWorkspace(rows, channels, y.dtype));
  return KernelOf(
      [conv = std::shared_ptr<Kernel>(std::move(made)), rows, channels,
       sums = FindChannelSums(y.dtype)](const KernelContext& c) -> Status {
        SLUICE_RETURN_IF_ERROR(conv->Run(c));
        return sums(rows, channels, c.output<void>(0), c.output<void>(1),
                    c.output<void>(2), c.workspace(), StreamOf(c));
      },
      workspace);
}

}  // namespace

void RegisterConvOhwiKernels(KernelTable& table) {
  for (const OhwiOp& op : kOhwiOps) {
    RegisterOwn(
        table, op.name, kFloating,
        [hwio = op.hwio](const KernelSpec& spec) {
          return MakeOhwiConv(spec, hwio);
        },
        IsServedConv);
  }
  RegisterOwn(table, "OhwiConv2DWithSums", kFloating, MakeWithSums,
              IsServedConv);
  RegisterOwn(table, "TurnFilters", kFloating, MakeTurnFilters);
}

}  // namespace sluice::cuda
