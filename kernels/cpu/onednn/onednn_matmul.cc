// Matrix products by oneDNN, in slices of the result's rows.
#if SLUICE_HAVE_ONEDNN
#include <algorithm>
#include <memory>

#include "engine/semantics/product.h"
#include "engine/threads.h"
#include "kernels/cpu/onednn/onednn.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kSlices = 8;
constexpr int64_t kRows = 48;  // of a slice at least: B is read by each

OnednnDesc Matrix(int64_t rows, int64_t columns, int64_t row_stride,
                  int64_t column_stride) {
  return {{rows, columns}, kOnednnF32, {row_stride, column_stride}};
}

dnnl::matmul::primitive_desc DescOf(const Product& p, int64_t rows) {
  return {
      {p.transpose_a ? Matrix(rows, p.k, 1, p.m) : Matrix(rows, p.k, p.k, 1),
       p.transpose_b ? Matrix(p.k, p.n, 1, p.k) : Matrix(p.k, p.n, p.n, 1),
       Matrix(rows, p.n, p.n, 1)},
      OnednnAttributes(),
      OnednnEngine()};
}

OnednnSlices SlicesOf(const Product& p) {
  OnednnSlices slices = OnednnSlicesOf(p.m, kSlices);
  slices.each = std::max(slices.each, kRows);
  return slices;
}

bool Supports(const KernelSpec& spec) {
  const OnednnOnThisThread scope;
  const Product p = ProductOf(spec);
  return !IsOnednnReference(DescOf(p, SlicesOf(p).size(0)));
}

KernelPtr Make(const KernelSpec& spec) {
  const OnednnOnThisThread scope;
  const Product p = ProductOf(spec);
  const OnednnSlices slices = SlicesOf(p);
  std::vector<OnednnCall> calls;
  for (int64_t s = 0; s < slices.count(); ++s) {
    const auto desc =
        DescOf(p, slices.size(s));  // made anew only if it differs
    calls.emplace_back(dnnl::matmul(desc), desc,
                       std::vector<OnednnCall::Argument>{
                           {DNNL_ARG_SRC, desc.src_desc()},
                           {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                           {DNNL_ARG_DST, desc.dst_desc()}});
  }
  return OnednnSlicedKernel(
      spec, slices, std::move(calls),
      [p](OnednnCall& call, const KernelContext& c, int64_t row,
          void* scratchpad) {
        return call.Run({c.input<float>(0) + row * (p.transpose_a ? 1 : p.k),
                         c.input<float>(1), c.output<float>(0) + row * p.n},
                        scratchpad);
      });
}

}  // namespace

void RegisterOnednnMatMulKernels(KernelTable& table) {
  RegisterOnednn(table, "MatMul", Make, Supports);
}

}  // namespace sluice::cpu
#endif  // SLUICE_HAVE_ONEDNN
