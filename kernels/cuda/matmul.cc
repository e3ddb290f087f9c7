// Our own kernels of the matrix products.
#include "kernels/cuda/matmul.h"

#include "kernels/cuda/kernels.h"

namespace sluice::cuda {

ProductShape ProductShapeOf(const KernelSpec& spec) {
  const Product p = ProductOf(spec);
  const auto batch_of = [](const TensorType& t) {
    return t.shape.Slice(0, t.shape.rank() - 2);
  };
  const Shape operands[] = {batch_of(spec.inputs[0]), batch_of(spec.inputs[1])};
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .batch = BroadcastOf(batch_of(spec.outputs[0]), operands),
          .a_step = p.m * p.k,
          .b_step = p.k * p.n,
          .c_step = p.m * p.n,
          .c_pitch = p.n};
}

Result<KernelPtr> MakeMatMul(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  const ProductShape shape = ProductShapeOf(spec);
  return KernelOf(
      [launch = FindMatMul(dtype), shape, p = ProductOf(spec),
       added = AddedTo(spec), relu = HasRelu(spec)](const KernelContext& c) {
        Epilogue epilogue{.relu = relu};
        if (added == Added::kBias) epilogue.bias = c.input<void>(2);
        if (added == Added::kMatrix) epilogue.addend = c.input<void>(2);
        return launch(p, shape, c.input<void>(0), c.input<void>(1),
                      c.output<void>(0), epilogue, c.workspace(), StreamOf(c));
      },
      ProductWorkspace(shape, dtype));
}

void RegisterMatMulKernels(KernelTable& table) {
  for (const char* op : {"MatMul", "MatMulBias", "MatMulAdd", "BatchMatMul"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .provider = "own",
                    .supports =
                        [](const KernelSpec& spec) {
                          return IsServed(ProductShapeOf(spec));
                        },
                    .dtypes = kFloating,
                    .make = MakeMatMul});
  }
}

}  // namespace sluice::cuda
