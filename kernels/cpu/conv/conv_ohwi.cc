// Convolutions with OHWI filters, which nothing asks a CPU for but tests: the
// filter is turned in the workspace, and the best kernel for an HWIO one runs.
// And TurnFilters.
#include "kernels/cpu/conv/conv_ohwi.h"

#include <utility>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/convert.h"
#include "engine/semantics/conv_geometry.h"
#include "engine/semantics/filter_layout.h"

namespace sluice::cpu {
namespace {

// A matrix [rows, columns] transposed.
template <typename From, typename To>
void Transpose(const From* from, To* to, int64_t rows, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      to[c * rows + r] = Convert<To>(from[r * columns + c]);
    }
  }
}

class OhwiConvolution final : public Kernel {
 public:
  Status Prepare(const KernelSpec& spec) {
    pass_ = ConvPassOf(spec);
    KernelSpec hwio = WithHwioFilter(spec);
    type_ = FilterOf(hwio);
    SLUICE_ASSIGN_OR_RETURN(MadeKernel made,
                            KernelTable::Global().Make(hwio, DeviceType::kCpu));
    kernel_ = std::move(made.kernel);
    filter_bytes_ = RoundUp(type_.bytes(), kAlignment);
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
    if (pass_ == ConvPass::kFilter) {
      outputs[0] = workspace;
    } else {
      Turn(inputs[1], workspace, /*ohwi=*/true);
      inputs[1] = workspace;
    }
    const KernelContext inner(inputs, outputs, workspace + filter_bytes_,
                              &c.step());
    SLUICE_RETURN_IF_ERROR(kernel_->Run(inner));
    if (pass_ == ConvPass::kFilter) {
      Turn(workspace, c.output<void>(0), /*ohwi=*/false);
    }
    return {};
  }

 private:
  void Turn(const void* from, void* to, bool ohwi) const {
    const FilterMatrix m =
        MatrixOf(ohwi ? OhwiOf(type_.shape) : type_.shape, ohwi);
    DispatchFloating(type_.dtype, [&]<typename T>(TypeTag<T>) {
      Transpose(static_cast<const T*>(from), static_cast<T*>(to), m.rows,
                m.columns);
    });
  }

  ConvPass pass_ = ConvPass::kForward;
  TensorType type_;  // of the filter, HWIO
  KernelPtr kernel_;
  size_t filter_bytes_ = 0;
};

Result<KernelPtr> MakeConvolution(const KernelSpec& spec) {
  auto kernel = std::make_unique<OhwiConvolution>();
  SLUICE_RETURN_IF_ERROR(kernel->Prepare(spec));
  return KernelPtr(std::move(kernel));
}

Result<KernelPtr> MakeTurn(const KernelSpec& spec) {
  std::vector<FilterMatrix> matrices;
  for (const TensorType& filter : spec.inputs) {
    matrices.push_back(
        MatrixOf(filter.shape, TurnsFromOhwi(spec.attrs.String("layout"))));
  }
  return DispatchFloating(
      spec.inputs[0].dtype, [&]<typename From>(TypeTag<From>) {
        return DispatchFloating(
            spec.outputs[0].dtype,
            [&]<typename To>(TypeTag<To>) -> Result<KernelPtr> {
              return KernelOf([matrices](const KernelContext& c) {
                for (size_t i = 0; i < matrices.size(); ++i) {
                  const int at = static_cast<int>(i);
                  Transpose(c.input<From>(at), c.output<To>(at),
                            matrices[i].rows, matrices[i].columns);
                }
              });
            });
      });
}

}  // namespace

void RegisterConvOhwiKernels(KernelTable& table) {
  for (const char* op :
       {"OhwiConv2D", "OhwiConv2DBackpropInput", "OhwiConv2DBackpropFilter"}) {
    table.Register({.op = op, .dtypes = kFloating, .make = MakeConvolution});
  }
  table.Register({.op = "TurnFilters", .dtypes = kFloating, .make = MakeTurn});
}

}  // namespace sluice::cpu
