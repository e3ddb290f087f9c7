// How products are cut, and the sum of the parts of those cut along k.
#include "engine/ceil_div.h"
#include "kernels/cuda/ops/gemm/product_kernels.h"

namespace sluice::cuda {
namespace {

// Tiles that fill any GPU of today twice.
constexpr int64_t kEnoughTiles = 288;
// Along k, of a part: shorter ones would spend their time on their sums.
constexpr int64_t kLeastPart = 256;

template <typename T>
__global__ void FinishProductKernel(ProductShape shape, int64_t parts,
                                    const ComputeOf<T>* partial, T* c,
                                    Epilogue epilogue) {
  using C = ComputeOf<T>;
  const int64_t matrix = shape.m * shape.n;
  const int64_t all = shape.batch.elements * matrix;
  for (int64_t i = GlobalThread(); i < all; i += GlobalThreads()) {
    C sum = partial[i];
    for (int64_t p = 1; p < parts; ++p) sum += partial[p * all + i];
    const int64_t batch = i / matrix, m = i % matrix / shape.n;
    const int64_t n = i % shape.n;
    const int64_t at = batch * shape.c_step + m * shape.c_pitch + n;
    const auto* bias = static_cast<const T*>(epilogue.bias);
    const auto* addend = static_cast<const T*>(epilogue.addend);
    if (bias != nullptr) {
      sum += static_cast<C>(bias[batch * epilogue.bias_step + n]);
    }
    if (addend != nullptr) sum += static_cast<C>(addend[at]);
    c[at] = T(epilogue.relu && C(0) > sum ? C(0) : sum);
  }
}

}  // namespace

ProductTiles TilesOf(const ProductShape& shape) {
  ProductTiles tiles;
  tiles.rows = CeilDiv(shape.m, kTile);
  tiles.columns = CeilDiv(shape.n, kTile);
  const int64_t whole = tiles.rows * tiles.columns * shape.batch.elements;
  int64_t parts = 1;
  if (whole > 0) {
    parts = std::clamp<int64_t>(CeilDiv(kEnoughTiles, whole), 1,
                                std::max<int64_t>(shape.k / kLeastPart, 1));
  }
  tiles.part = CeilDiv(CeilDiv(shape.k, parts), kTileDepth) * kTileDepth;
  tiles.parts = shape.k > 0 ? CeilDiv(shape.k, tiles.part) : 1;
  tiles.count = whole * tiles.parts;
  return tiles;
}

size_t ProductWorkspace(const ProductShape& shape, DType dtype) {
  const int64_t parts = TilesOf(shape).parts;
  if (parts == 1) return 0;
  const size_t each = dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(parts * shape.batch.elements * shape.m * shape.n) *
         each;
}

template <typename T>
Status FinishProduct(const ProductShape& shape, int64_t parts,
                     const void* partial, T* c, const Epilogue& epilogue,
                     cudaStream_t stream) {
  const int64_t all = shape.batch.elements * shape.m * shape.n;
  return Launch("sum of a product's parts", GridFor(all), stream,
                FinishProductKernel<T>, shape, parts,
                static_cast<const ComputeOf<T>*>(partial), c, epilogue);
}

template Status FinishProduct(const ProductShape&, int64_t, const void*, float*,
                              const Epilogue&, cudaStream_t);
template Status FinishProduct(const ProductShape&, int64_t, const void*,
                              double*, const Epilogue&, cudaStream_t);
template Status FinishProduct(const ProductShape&, int64_t, const void*,
                              __half*, const Epilogue&, cudaStream_t);
template Status FinishProduct(const ProductShape&, int64_t, const void*,
                              __nv_bfloat16*, const Epilogue&, cudaStream_t);

}  // namespace sluice::cuda
