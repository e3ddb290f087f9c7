// The kernel behind product.h, a template over where its operands come from. A
// block computes a tile of 64 x 64, each of its 256 threads 4 x 4 of it; tiles
// of A and B, 16 along k, come through shared memory as what arithmetic is done
// in. The next tiles are on their way in registers while one is multiplied.
//
// An operand is a struct with
//   bool along_k;  // are packs along k, or along m (n)?
//   Pack<T, 4> Load(int64_t base, int outer, int inner) const;
// the four elements from `inner` on along packs, at `outer` across them, zeros
// outside the matrix; `base` is the matrix' offset in the batch.
#ifndef SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_KERNELS_H_
#define SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_KERNELS_H_

#include <algorithm>

#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"
#include "kernels/cuda/ops/gemm/product.h"

namespace sluice::cuda {

inline constexpr int kTile = 64;       // rows and columns
inline constexpr int kTileDepth = 16;  // along k
inline constexpr int kProductThreads = 256;
// Between a tile's lines in shared memory: 4 more keep packs aligned and let
// threads that store a column meet in fewer banks.
inline constexpr int kTilePitch = kTile + 4;
inline constexpr int kTileElements = kTileDepth * kTilePitch;
static_assert(kTile * kTileDepth == 4 * kProductThreads,
              "a thread brings one pack of each operand");
// Along k. Longer parts are summed in runs of as much, since in one sum over
// all of it the last digits of each term would be lost.
inline constexpr int kProductRun = 16 * kTileDepth;

// How a product is cut into tiles, and k into parts.
struct ProductTiles {
  int64_t rows = 0, columns = 0;  // of tiles
  int64_t parts = 1;
  int64_t part = 0;  // elements along k of each but the last
  int64_t count = 0;
};
ProductTiles TilesOf(const ProductShape& shape);

// c = the sums of the parts, in order, through the epilogue. `partial` is
// [parts, batch, m, n] of what T is computed in.
template <typename T>
Status FinishProduct(const ProductShape& shape, int64_t parts,
                     const void* partial, T* c, const Epilogue& epilogue,
                     cudaStream_t stream);

// [lines, length] of a row-major matrix; packs are along its lines.
template <typename T>
struct MatrixOperand {
  const T* matrix;
  int lines, length;
  int64_t pitch;  // elements from one line to the next
  bool along_k;
  bool whole;  // lines may be accessed in packs

  __device__ Pack<T, 4> Load(int64_t base, int line, int at) const {
    const int count = line < lines ? length - at : 0;
    return LoadPack<T, 4>(matrix + base + line * pitch + at, count, whole);
  }
};

// A thread's share of bringing an operand's tiles to shared memory.
template <typename T, typename Operand>
class TileLoader {
 public:
  // Loads the rows (columns) from `first` on of the matrix at `base`.
  __device__ TileLoader(const Operand& operand, int64_t base, int first)
      : operand_(operand), base_(base), first_(first) {}
  __device__ void Load(int k) {
    const int t = static_cast<int>(threadIdx.x);
    pack_ = operand_.along_k ? operand_.Load(base_, first_ + t / kPacksDeep,
                                             k + t % kPacksDeep * 4)
                             : operand_.Load(base_, k + t / kPacksWide,
                                             first_ + t % kPacksWide * 4);
  }
  // Stores the pack in the tile `shared`, [kTileDepth, kTilePitch].
  __device__ void Store(ComputeOf<T>* shared) const {
    using C = ComputeOf<T>;
    const int t = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 4; ++i) {
      const int at =
          operand_.along_k
              ? (t % kPacksDeep * 4 + i) * kTilePitch + t / kPacksDeep
              : t / kPacksWide * kTilePitch + t % kPacksWide * 4 + i;
      shared[at] = static_cast<C>(pack_.at[i]);
    }
  }

 private:
  static constexpr int kPacksDeep = kTileDepth / 4;
  static constexpr int kPacksWide = kTile / 4;

  const Operand& operand_;
  int64_t base_;
  int first_;
  Pack<T, 4> pack_;
};

// sums[i][j] += the tiles' products.
template <typename C>
__device__ void MultiplyTiles(const C* a, const C* b, C (&sums)[4][4]) {
  const int row = static_cast<int>(threadIdx.x) / (kTile / 4) * 4;
  const int column = static_cast<int>(threadIdx.x) % (kTile / 4) * 4;
  for (int k = 0; k < kTileDepth; ++k) {
    const auto x = LoadPack<C, 4>(a + k * kTilePitch + row, 4, true);
    const auto y = LoadPack<C, 4>(b + k * kTilePitch + column, 4, true);
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) sums[i][j] += x.at[i] * y.at[j];
    }
  }
}

// Adds a run's sums to those before, and begins another.
template <typename C>
__device__ void EndRun(C (&sums)[4][4], C* ended) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      ended[(4 * i + j) * kProductThreads] += sums[i][j];
      sums[i][j] = C(0);
    }
  }
}

// The results that the sums of four neighbours in a row become.
template <typename T>
__device__ Pack<T, 4> Finish(const ComputeOf<T> (&sums)[4], const T* bias,
                             const T* addend, int64_t count, bool whole,
                             bool relu) {
  using C = ComputeOf<T>;
  Pack<T, 4> added = {}, plus = {};
  if (bias != nullptr) added = LoadPack<T, 4>(bias, count, false);
  if (addend != nullptr) plus = LoadPack<T, 4>(addend, count, whole);
  Pack<T, 4> y;
  for (int j = 0; j < 4; ++j) {
    C sum = sums[j];
    if (bias != nullptr) sum += static_cast<C>(added.at[j]);
    if (addend != nullptr) sum += static_cast<C>(plus.at[j]);
    y.at[j] = T(relu && C(0) > sum ? C(0) : sum);
  }
  return y;
}

// Writes products to c, through the epilogue; or, with `partial`, only one
// part's sums to that. whole: c's rows (and the addend's) may be accessed in
// packs. runs: parts are summed in runs.
template <typename T, typename A, typename B>
__global__ void __launch_bounds__(kProductThreads)
    ProductKernel(ProductShape shape, ProductTiles tiles, A a, B b, T* c,
                  Epilogue epilogue, bool whole, bool runs,
                  ComputeOf<T>* partial) {
  using C = ComputeOf<T>;
  // Two tiles of each operand: one is read while the next is written.
  C* shared = SharedMemory<C>();
  // The sums of this thread's runs that have ended: in shared memory, since
  // registers are dear and a run ends seldom. No other thread reads them.
  C* const ended = shared + 4 * kTileElements + threadIdx.x;
  const int row = static_cast<int>(threadIdx.x) / (kTile / 4) * 4;
  const int column = static_cast<int>(threadIdx.x) % (kTile / 4) * 4;
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int n0 = static_cast<int>(tile % tiles.columns) * kTile;
    int64_t rest = tile / tiles.columns;
    const int m0 = static_cast<int>(rest % tiles.rows) * kTile;
    rest /= tiles.rows;
    const int64_t part = rest % tiles.parts, matrix = rest / tiles.parts;
    const Offsets<2> at = OffsetsOf<2>(shape.batch, matrix);
    TileLoader<T, A> load_a(a, at.at[0] * shape.a_step, m0);
    TileLoader<T, B> load_b(b, at.at[1] * shape.b_step, n0);

    C sums[4][4] = {};
    if (runs) {
      for (int i = 0; i < 16; ++i) ended[i * kProductThreads] = C(0);
    }
    const int begin = static_cast<int>(part * tiles.part);
    const int64_t beyond = (part + 1) * tiles.part;
    const int end = static_cast<int>(shape.k < beyond ? shape.k : beyond);
    C* current = shared;
    C* next = shared + 2 * kTileElements;
    if (begin < end) {
      load_a.Load(begin);
      load_b.Load(begin);
      load_a.Store(current);
      load_b.Store(current + kTileElements);
    }
    Barrier();  // the first tiles are there
    for (int k = begin; k < end; k += kTileDepth) {
      const bool more = k + kTileDepth < end;
      if (more) {
        load_a.Load(k + kTileDepth);
        load_b.Load(k + kTileDepth);
      }
      MultiplyTiles(current, current + kTileElements, sums);
      if (runs && (k - begin) % kProductRun == kProductRun - kTileDepth) {
        EndRun(sums, ended);
      }
      if (more) {
        load_a.Store(next);
        load_b.Store(next + kTileElements);
      }
      // The next tiles are there, and nobody reads these any more.
      Barrier();
      C* const read = current;
      current = next;
      next = read;
    }
    if (runs) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          sums[i][j] += ended[(4 * i + j) * kProductThreads];
        }
      }
    }

    for (int i = 0; i < 4; ++i) {
      const int64_t m = m0 + row + i, n = n0 + column;
      const int64_t count = shape.n - n;
      if (m >= shape.m || count <= 0) continue;
      if (partial != nullptr) {
        C* to =
            partial +
            ((part * shape.batch.elements + matrix) * shape.m + m) * shape.n +
            n;
        for (int j = 0; j < 4 && j < count; ++j) to[j] = sums[i][j];
        continue;
      }
      const int64_t to = matrix * shape.c_step + m * shape.c_pitch + n;
      const auto* bias = static_cast<const T*>(epilogue.bias);
      const auto* addend = static_cast<const T*>(epilogue.addend);
      StorePack(
          Finish<T>(sums[i],
                    bias == nullptr ? nullptr
                                    : bias + matrix * epilogue.bias_step + n,
                    addend == nullptr ? nullptr : addend + to, count, whole,
                    epilogue.relu),
          c + to, count, whole);
    }
  }
}

// May packs of four be accessed from p on in lines `pitch` apart, of matrices
// `step` apart?
template <typename T>
bool LinesAreWhole(const void* p, int64_t pitch, int64_t step) {
  return IsAligned<T, 4>(p) && pitch % 4 == 0 && step % 4 == 0;
}

// Launches a product that is cut as `tiles` say, which tests choose.
template <typename T, typename A, typename B>
Status LaunchTiles(const char* name, const ProductShape& shape,
                   const ProductTiles& tiles, const A& a, const B& b, T* c,
                   const Epilogue& epilogue, void* workspace,
                   cudaStream_t stream) {
  using C = ComputeOf<T>;
  const bool whole =
      LinesAreWhole<T>(c, shape.c_pitch, shape.c_step) &&
      (epilogue.addend == nullptr || IsAligned<T, 4>(epilogue.addend));
  // float64 has digits enough.
  const bool runs = sizeof(C) < sizeof(double) && tiles.part > kProductRun;
  const size_t shared = 4 * kTileElements + (runs ? 16 * kProductThreads : 0);
  auto* partial = tiles.parts > 1 ? static_cast<C*>(workspace) : nullptr;
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  const Status status = Launch(
      name,
      {std::min(tiles.count, kMostBlocks), kProductThreads, shared * sizeof(C)},
      stream, ProductKernel<T, A, B>, shape, tiles, a, b, c, epilogue, whole,
      runs, partial);
  if (!status.ok() || tiles.parts == 1) return status;
  return FinishProduct<T>(shape, tiles.parts, partial, c, epilogue, stream);
}

template <typename T, typename A, typename B>
Status LaunchProduct(const char* name, const ProductShape& shape, const A& a,
                     const B& b, T* c, const Epilogue& epilogue,
                     void* workspace, cudaStream_t stream) {
  return LaunchTiles<T>(name, shape, TilesOf(shape), a, b, c, epilogue,
                        workspace, stream);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_GEMM_PRODUCT_KERNELS_H_
