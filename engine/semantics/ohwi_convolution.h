// A convolution whose filter is OHWI by the kernel for an HWIO one: the filter
// is turned in the workspace before it runs, or its gradient after. The kernels
// of all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_OHWI_CONVOLUTION_H_
#define SLUICE_ENGINE_SEMANTICS_OHWI_CONVOLUTION_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/semantics/conv_geometry.h"
#include "engine/semantics/filter_layout.h"

namespace sluice {

// The ops, and those that do the same with an HWIO filter.
struct OhwiOp {
  const char* name;
  const char* hwio;
};
inline constexpr OhwiOp kOhwiOps[] = {
    {"OhwiConv2D", "Conv2D"},
    {"OhwiConv2DBackpropInput", "Conv2DBackpropInput"},
    {"OhwiConv2DBackpropFilter", "Conv2DBackpropFilter"},
};

// Turn is called as Status(from, to, context).
template <typename Turn>
class OhwiConvolution final : public Kernel {
 public:
  OhwiConvolution(ConvPass pass, size_t filter_bytes, KernelPtr hwio, Turn turn)
      : pass_(pass),
        filter_bytes_(filter_bytes),
        hwio_(std::move(hwio)),
        turn_(std::move(turn)) {}

  size_t workspace_bytes() const override {
    return filter_bytes_ + hwio_->workspace_bytes();
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
      SLUICE_RETURN_IF_ERROR(hwio_->Run(inner));
      return turn_(workspace, c.output<void>(0), c);
    }
    SLUICE_RETURN_IF_ERROR(turn_(inputs[1], workspace, c));
    inputs[1] = workspace;
    return hwio_->Run(inner);
  }

 private:
  const ConvPass pass_;
  const size_t filter_bytes_;  // of the one in the workspace, which is first
  const KernelPtr hwio_;
  Turn turn_;
};

// A kernel for the spec of an OHWI convolution. make_hwio(spec) makes the
// kernel of `hwio` for the same convolution; make_turn(dtype, matrix) makes the
// transposition of `matrix`, the filter's layout before it is turned. The
// workspace behind the filter is aligned to `alignment` bytes.
template <typename MakeHwio, typename MakeTurn>
Result<KernelPtr> MakeOhwiConvolution(const KernelSpec& spec, const char* hwio,
                                      size_t alignment, MakeHwio make_hwio,
                                      MakeTurn make_turn) {
  KernelSpec inner = WithHwioFilter(spec, hwio);
  const TensorType& filter = FilterOf(inner);
  const FilterMatrix matrix = spec.conv.pass == ConvPass::kFilter
                                  ? MatrixOf(filter.shape, /*ohwi=*/false)
                                  : MatrixOf(OhwiOf(filter.shape), true);
  SLUICE_ASSIGN_OR_RETURN(KernelPtr kernel, make_hwio(inner));
  auto turn = make_turn(filter.dtype, matrix);
  return KernelPtr(std::make_unique<OhwiConvolution<decltype(turn)>>(
      spec.conv.pass, RoundUp(filter.bytes(), alignment), std::move(kernel),
      std::move(turn)));
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_OHWI_CONVOLUTION_H_
