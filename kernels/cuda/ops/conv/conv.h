// Convolutions of NHWC images with HWIO filters, as products whose operands
// are gathered while they are multiplied: nothing is laid out in memory first.
#ifndef SLUICE_KERNELS_CUDA_OPS_CONV_CONV_H_
#define SLUICE_KERNELS_CUDA_OPS_CONV_CONV_H_

#include <cuda_runtime.h>

#include "engine/kernel.h"
#include "engine/semantics/conv_geometry.h"
#include "kernels/cuda/ops/gemm/product.h"

namespace sluice::cuda {

// The three products of a convolution, one for each group:
//   y[pixel, o] = sum over (tap, i) of x's patches and the filter,
//   dx[pixel, i] = sum over (tap, o) of dy's windows and the filter,
//   dfilter[(tap, i), o] = sum over pixels of x's patches and dy.
ProductShape ConvProductOf(const ConvGeometry& geometry, ConvPass pass);

// Whether our own kernels serve a convolution: positions in its images, padding
// counted, and the sizes of its product are of 32 bits there.
bool IsServedConv(const KernelSpec& spec);

// `a` and `b` are the operands in the op's order: x or dy, then the filter or
// dy; `workspace` is ProductWorkspace.
using ConvLauncher = Status (*)(const ConvGeometry& geometry, const void* a,
                                const void* b, void* c,
                                const Epilogue& epilogue, void* workspace,
                                cudaStream_t stream);
ConvLauncher FindConv(ConvPass pass, DType dtype);  // of a floating dtype

// Our own kernel for any of the convolutions with HWIO filters.
Result<KernelPtr> MakeConv(const KernelSpec& spec);
void RegisterConvOhwiKernels(KernelTable& table);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_CONV_CONV_H_
