// The kernels of ops with OHWI filters. Our own convolutions read HWIO, so
// there filters are turned in the workspace; cuDNN's, which register above,
// read them as they are.
#include <vector>

#include "engine/ceil_div.h"
#include "engine/semantics/filter_layout.h"
#include "kernels/cuda/device/array_list.h"
#include "kernels/cuda/ops/conv/conv.h"
#include "kernels/cuda/ops/conv/turn_filters.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

constexpr size_t kAligned = 256;

class OhwiConvolution final : public Kernel {
 public:
  Status Prepare(const KernelSpec& spec) {
    pass_ = ConvPassOf(spec);
    KernelSpec hwio = WithHwioFilter(spec);
    const TensorType& filter = FilterOf(hwio);
    list_.Add(pass_ == ConvPass::kFilter
                  ? MatrixOf(filter.shape, /*ohwi=*/false)
                  : MatrixOf(OhwiOf(filter.shape), /*ohwi=*/true));
    turn_ = FindTurnFilters(filter.dtype, filter.dtype);
    filter_bytes_ = RoundUp(filter.bytes(), kAligned);
    SLUICE_ASSIGN_OR_RETURN(kernel_, MakeConv(hwio));
    return {};
  }

  size_t workspace_bytes() const override {
    return filter_bytes_ + kernel_->workspace_bytes();
  }

  Status Run(const KernelContext& c) override {
    char* const workspace = static_cast<char*>(c.workspace());
    // A third operand is a shape, which is known when kernels are made.
    void* inputs[] = {const_cast<void*>(c.input<void>(0)),
                      const_cast<void*>(c.input<void>(1)), nullptr};
    void* outputs[] = {c.output<void>(0)};
    const KernelContext inner(inputs, outputs, workspace + filter_bytes_,
                              &c.step());
    if (pass_ == ConvPass::kFilter) {
      outputs[0] = workspace;
      SLUICE_RETURN_IF_ERROR(kernel_->Run(inner));
      return Turn(workspace, c.output<void>(0), c);
    }
    SLUICE_RETURN_IF_ERROR(Turn(inputs[1], workspace, c));
    inputs[1] = workspace;
    return kernel_->Run(inner);
  }

 private:
  Status Turn(const void* from, void* to, const KernelContext& c) {
    list_.at[0].from = from;
    list_.at[0].to = to;
    return turn_(list_, StreamOf(c));
  }

  ConvPass pass_ = ConvPass::kForward;
  MatrixList list_;  // of one
  TurnFiltersLauncher turn_ = nullptr;
  KernelPtr kernel_;
  size_t filter_bytes_ = 0;
};

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

Result<KernelPtr> MakeOhwiConv(const KernelSpec& spec) {
  auto kernel = std::make_unique<OhwiConvolution>();
  SLUICE_RETURN_IF_ERROR(kernel->Prepare(spec));
  return KernelPtr(std::move(kernel));
}

}  // namespace

void RegisterConvOhwiKernels(KernelTable& table) {
  const auto supports = [](const KernelSpec& spec) {
    const Result<ConvGeometry> geometry = ConvGeometryOf(spec);
    return geometry.ok() &&
           IsServed(ConvProductOf(*geometry, ConvPassOf(spec)));
  };
  for (const char* op :
       {"OhwiConv2D", "OhwiConv2DBackpropInput", "OhwiConv2DBackpropFilter"}) {
    RegisterOwn(table, op, kFloating, MakeOhwiConv, supports);
  }
  RegisterOwn(table, "TurnFilters", kFloating, MakeTurnFilters);
}

}  // namespace sluice::cuda
