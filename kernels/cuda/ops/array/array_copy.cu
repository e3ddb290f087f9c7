// Copies between strided arrays. Elements go in units as large as sizes,
// strides and addresses allow, up to 16 bytes, in the order of the result.
// Where that order would read far apart, as in a transpose, squares go through
// shared memory, so that both sides are accessed along their rows.
#include "kernels/cuda/ops/array/array_copy.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/unit.h"

namespace sluice::cuda {
namespace {

// Dimensions of units, and where they begin. Plain data: passed to kernels.
struct Walk {
  struct Dim {
    int64_t size, to, from;
  };
  int64_t elements = 1;
  int rank = 0;
  Dim dims[StridedMove::kMaxDims] = {};

  void Add(const StridedMove::Dim& dim) {
    dims[rank++] = {dim.size, dim.to, dim.from};
    elements *= dim.size;
  }
};

struct Places {
  int64_t to = 0, from = 0;
};
// Of item i of the walk.
__device__ Places PlacesOf(const Walk& walk, int64_t i) {
  Places places;
  for (int d = walk.rank - 1; d >= 0; --d) {
    const Walk::Dim& dim = walk.dims[d];
    const int64_t rest = d == 0 ? 0 : Quotient(i, dim.size);
    const int64_t index = i - rest * dim.size;
    places.to += index * dim.to;
    places.from += index * dim.from;
    i = rest;
  }
  return places;
}

template <typename U>
__global__ void CopyKernel(Walk walk, const U* from, U* to) {
  for (int64_t i = GlobalThread(); i < walk.elements; i += GlobalThreads()) {
    const Places places = PlacesOf(walk, i);
    to[places.to] = from[places.from];
  }
}

// --- Transposes --------------------------------------------------------------

// to[line][i] = from[i][line] for each item of the walk: `line` is contiguous
// in from, `i` in to.
struct TransposeShape {
  int64_t lines, n;
  int64_t to_step;    // from a line to the next
  int64_t from_step;  // from an i to the next
};

// Squares of this side: rows of them are 64 bytes or more.
template <typename U>
inline constexpr int kSide = sizeof(U) < 4 ? 64 : 32;
inline constexpr int kTransposeThreads = 256;

template <typename U>
int64_t Squares(const TransposeShape& shape) {
  const int64_t side = kSide<U>;
  return CeilDiv(shape.lines, side) * CeilDiv(shape.n, side);
}

template <typename U>
__global__ void __launch_bounds__(kTransposeThreads)
    TransposeKernel(Walk walk, TransposeShape shape, int64_t squares,
                    const U* from, U* to) {
  constexpr int kEdge = kSide<U>, kRows = kTransposeThreads / kEdge;
  constexpr int kPitch = kEdge + 1;  // no two of a column in one bank
  U* square = SharedMemory<U>();
  const int64_t across = CeilDiv(shape.n, kEdge);
  const int column = static_cast<int>(threadIdx.x) % kEdge;
  const int first_row = static_cast<int>(threadIdx.x) / kEdge;
  for (int64_t task = blockIdx.x; task < walk.elements * squares;
       task += gridDim.x) {
    const int64_t item = Quotient(task, squares);
    const int64_t place = task - item * squares;
    const int64_t line = Quotient(place, across) * kEdge;
    const int64_t i = place % across * kEdge;
    const Places start = PlacesOf(walk, item);
    for (int row = first_row; row < kEdge; row += kRows) {
      if (i + row < shape.n && line + column < shape.lines) {
        square[row * kPitch + column] =
            from[start.from + (i + row) * shape.from_step + line + column];
      }
    }
    Barrier();  // the square is there
    for (int row = first_row; row < kEdge; row += kRows) {
      if (line + row < shape.lines && i + column < shape.n) {
        to[start.to + (line + row) * shape.to_step + i + column] =
            square[column * kPitch + row];
      }
    }
    Barrier();  // all have read, before the next square is written
  }
}

// --- Launchers ---------------------------------------------------------------

// The same move in the largest unit there is; returns that in bytes.
int64_t Widen(StridedMove& move, DType dtype, const void* from,
              const void* to) {
  const auto bytes = static_cast<int64_t>(SizeOf(dtype));
  if (move.rank == 0) return bytes;
  StridedMove::Dim& inner = move.dims[move.rank - 1];
  if (inner.to != 1 || inner.from != 1) return bytes;
  CommonUnit common;
  common.Add(from);
  common.Add(to);
  common.Add(move.from_offset * bytes);
  common.Add(move.to_offset * bytes);
  common.Add(inner.size * bytes);
  for (int d = 0; d < move.rank - 1; ++d) {
    common.Add(move.dims[d].from * bytes);
    common.Add(move.dims[d].to * bytes);
  }
  const int64_t times = common.bytes() / bytes;
  if (times <= 1) return bytes;
  inner.size /= times;
  move.from_offset /= times;
  move.to_offset /= times;
  for (int d = 0; d < move.rank - 1; ++d) {
    move.dims[d].from /= times;
    move.dims[d].to /= times;
  }
  return times * bytes;
}

// Squares that would be filled by less than this are left to CopyKernel.
constexpr int64_t kLeastSide = 8;

// Which dimension is contiguous in `from`, if the innermost is in `to` alone
// and squares are worth it; else -1.
int TransposedDim(const StridedMove& move) {
  const int last = move.rank - 1;
  if (move.rank < 2 || move.dims[last].to != 1 || move.dims[last].from == 0 ||
      move.dims[last].size < kLeastSide) {
    return -1;
  }
  for (int d = 0; d < last; ++d) {
    if (move.dims[d].from == 1 && move.dims[d].size >= kLeastSide) return d;
  }
  return -1;
}

template <typename U>
Status Transpose(const char* name, const StridedMove& move, int lines,
                 const U* from, U* to, cudaStream_t stream) {
  const int last = move.rank - 1;
  const TransposeShape shape = {move.dims[lines].size, move.dims[last].size,
                                move.dims[lines].to, move.dims[last].from};
  Walk walk;
  for (int d = 0; d < last; ++d) {
    if (d != lines) walk.Add(move.dims[d]);
  }
  const int64_t squares = Squares<U>(shape);
  return Launch(name,
                {std::min<int64_t>(walk.elements * squares, 1 << 16),
                 kTransposeThreads, kSide<U> * (kSide<U> + 1) * sizeof(U)},
                stream, TransposeKernel<U>, walk, shape, squares, from, to);
}

}  // namespace

Status CopyStrided(const char* name, const StridedMove& move, DType dtype,
                   const void* from, void* to, cudaStream_t stream) {
  if (move.elements() == 0) return {};  // of operands that may be null
  StridedMove wide = move;
  return DispatchUnit(
      Widen(wide, dtype, from, to), [&]<typename U>(TypeTag<U>) {
        const U* source = static_cast<const U*>(from) + wide.from_offset;
        U* target = static_cast<U*>(to) + wide.to_offset;
        if constexpr (sizeof(U) <= 8) {  // what is transposed is no wider
          const int lines = TransposedDim(wide);
          if (lines >= 0) {
            return Transpose(name, wide, lines, source, target, stream);
          }
        }
        Walk walk;
        for (int d = 0; d < wide.rank; ++d) walk.Add(wide.dims[d]);
        return Launch(name, GridFor(walk.elements), stream, CopyKernel<U>, walk,
                      source, target);
      });
}

}  // namespace sluice::cuda
