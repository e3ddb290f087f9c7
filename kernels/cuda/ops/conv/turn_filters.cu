// Transposes a list of matrices, square by square through shared memory, so
// that rows are read and written whole on both sides.
#include "kernels/cuda/ops/conv/turn_filters.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cuda/device/array_chunks.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kSide = MatrixList::kSide;
constexpr int kPitch = kSide + 1;  // no two of a column in one bank
constexpr int kThreads = 256;

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) TurnFiltersKernel(MatrixList list) {
  using C = ComputeOf<From>;
  constexpr int kRows = kThreads / kSide;
  C* square = SharedMemory<C>();
  const int column = static_cast<int>(threadIdx.x) % kSide;
  const int first_row = static_cast<int>(threadIdx.x) / kSide;
  for (int64_t task = blockIdx.x; task < list.squares; task += gridDim.x) {
    const MatrixList::Matrix& m = list.at[ArrayOf(list.at, list.count, task)];
    const auto* from = static_cast<const From*>(m.from);
    auto* to = static_cast<To*>(m.to);
    const int64_t across = CeilDiv(m.columns, kSide);
    const int64_t place = task - m.first_chunk;
    const int64_t r0 = Quotient(place, across) * kSide;
    const int64_t c0 = (place - Quotient(place, across) * across) * kSide;
    for (int row = first_row; row < kSide; row += kRows) {
      if (r0 + row < m.rows && c0 + column < m.columns) {
        square[row * kPitch + column] =
            static_cast<C>(Load(from + (r0 + row) * m.columns + c0 + column));
      }
    }
    Barrier();  // the square is there
    for (int row = first_row; row < kSide; row += kRows) {
      if (c0 + row < m.columns && r0 + column < m.rows) {
        Store(To(static_cast<ComputeOf<To>>(square[column * kPitch + row])),
              to + (c0 + row) * m.rows + r0 + column);
      }
    }
    Barrier();  // all have read, before the next square is written
  }
}

template <typename From, typename To>
Status LaunchTurnFilters(const MatrixList& list, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1 << 14;
  return Launch("TurnFilters",
                {std::min(list.squares, kMostBlocks), kThreads,
                 kSide * kPitch * sizeof(ComputeOf<From>)},
                stream, TurnFiltersKernel<From, To>, list);
}

}  // namespace

void MatrixList::Add(const FilterMatrix& matrix) {
  Matrix& added = at[count++];
  added.rows = matrix.rows;
  added.columns = matrix.columns;
  added.first_chunk = squares;
  squares += CeilDiv(matrix.rows, kSide) * CeilDiv(matrix.columns, kSide);
}

TurnFiltersLauncher FindTurnFilters(DType from, DType to) {
  return DispatchFloating(
      from, [&]<typename From>(TypeTag<From>) -> TurnFiltersLauncher {
        return DispatchFloating(
            to, []<typename To>(TypeTag<To>) -> TurnFiltersLauncher {
              return LaunchTurnFilters<DeviceTypeOf<From>, DeviceTypeOf<To>>;
            });
      });
}

}  // namespace sluice::cuda
