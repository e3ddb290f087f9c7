// Convolutions with OHWI filters, which nothing asks a CPU for but tests, by
// the best kernels for HWIO ones; with sums of what they make; and TurnFilters.
#include "kernels/cpu/conv/conv_ohwi.h"

#include <memory>
#include <utility>
#include <vector>

#include "engine/convert.h"
#include "engine/semantics/filter_layout.h"
#include "engine/semantics/ohwi_convolution.h"

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

Result<KernelPtr> MakeConvolution(const KernelSpec& spec, const char* hwio) {
  return MakeOhwiConvolution(
      spec, hwio, kAlignment,
      [](const KernelSpec& inner) -> Result<KernelPtr> {
        SLUICE_ASSIGN_OR_RETURN(MadeKernel made, KernelTable::Global().Make(
                                                     inner, DeviceType::kCpu));
        return std::move(made.kernel);
      },
      [](DType dtype, FilterMatrix m) {
        return [=](const void* from, void* to, const KernelContext&) -> Status {
          DispatchFloating(dtype, [&]<typename T>(TypeTag<T>) {
            Transpose(static_cast<const T*>(from), static_cast<T*>(to), m.rows,
                      m.columns);
          });
          return {};
        };
      });
}

// Sums in double, whatever they are for.
template <typename T>
void SumChannels(const T* y, int64_t rows, int64_t channels,
                 ComputeType<T>* sums, ComputeType<T>* sums_of_squares) {
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double v = Convert<double>(y[r * channels + c]);
      sum += v;
      squares += v * v;
    }
    sums[c] = static_cast<ComputeType<T>>(sum);
    sums_of_squares[c] = static_cast<ComputeType<T>>(squares);
  }
}

Result<KernelPtr> MakeWithSums(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(KernelPtr made,
                          MakeConvolution(WithoutSums(spec), "Conv2D"));
  const Shape& y = spec.outputs[0].shape;
  return DispatchFloating(
      spec.outputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        using C = ComputeType<T>;
        const size_t workspace = made->workspace_bytes();
        return KernelOf(
            [conv = std::shared_ptr<Kernel>(std::move(made)),
             rows = y.elements(0, 3),
             channels = y[3]](const KernelContext& c) -> Status {
              SLUICE_RETURN_IF_ERROR(conv->Run(c));
              SumChannels(c.output<const T>(0), rows, channels, c.output<C>(1),
                          c.output<C>(2));
              return {};
            },
            workspace);
      });
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
  for (const OhwiOp& op : kOhwiOps) {
    table.Register({.op = op.name,
                    .dtypes = kFloating,
                    .make = [hwio = op.hwio](const KernelSpec& spec) {
                      return MakeConvolution(spec, hwio);
                    }});
  }
  table.Register(
      {.op = "OhwiConv2DWithSums", .dtypes = kFloating, .make = MakeWithSums});
  table.Register({.op = "TurnFilters", .dtypes = kFloating, .make = MakeTurn});
}

}  // namespace sluice::cpu
