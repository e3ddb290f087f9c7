// Our own kernels of the matrix products.
#include "kernels/cuda/ops/gemm/matmul.h"

#include "kernels/cuda/runtime/kernels.h"

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

ColumnMajorProduct ColumnMajorProductOf(const Product& p) {
  return {.first = p.transpose_b ? ColumnMajor{p.k, p.n, p.k, true}
                                 : ColumnMajor{p.n, p.k, p.n, false},
          .second = p.transpose_a ? ColumnMajor{p.m, p.k, p.m, true}
                                  : ColumnMajor{p.k, p.m, p.k, false},
          .result = {p.n, p.m, p.n, false}};
}

MatMulBatches MatMulBatchesOf(const ProductShape& shape) {
  const Broadcast& batch = shape.batch;
  const int last = batch.rank - 1;
  MatMulBatches batches;
  batches.inner = static_cast<int32_t>(batch.dims[last]);
  batches.a_stride = batch.strides[0][last] * shape.a_step;
  batches.b_stride = batch.strides[1][last] * shape.b_step;
  batches.c_stride = shape.c_step;
  for (int64_t i = 0; i < batch.elements / batch.dims[last]; ++i) {
    MatMulBatches::Offsets offsets{.c = i * batch.dims[last] * shape.c_step};
    int64_t rest = i;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t index = rest % batch.dims[d];
      offsets.a += index * batch.strides[0][d] * shape.a_step;
      offsets.b += index * batch.strides[1][d] * shape.b_step;
      rest /= batch.dims[d];
    }
    batches.outer.push_back(offsets);
  }
  return batches;
}

namespace {

// Any of the ops, by our own kernel.
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

}  // namespace

void RegisterMatMulKernels(KernelTable& table) {
  for (const char* op : {"MatMul", "MatMulBias", "MatMulAdd", "BatchMatMul"}) {
    RegisterOwn(table, op, kFloating, MakeMatMul, [](const KernelSpec& spec) {
      return IsServed(ProductShapeOf(spec));
    });
  }
}

}  // namespace sluice::cuda
