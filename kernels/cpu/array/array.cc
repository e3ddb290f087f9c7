// Putting tensors together, cutting them up, repeating and reversing them: a
// strided copy for each, or for each part.
#include <type_traits>
#include <vector>

#include "engine/threads.h"
#include "kernels/cpu/array/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

std::vector<StridedCopy> CopiesOf(DType dtype,
                                  const std::vector<StridedMove>& moves) {
  std::vector<StridedCopy> copies;
  for (const StridedMove& move : moves) copies.emplace_back(dtype, move);
  return copies;
}

// Concat and Stack.
Result<KernelPtr> MakeJoin(const KernelSpec& spec) {
  return KernelOf([copies = CopiesOf(spec.outputs[0].dtype, JoinMoves(spec))](
                      const KernelContext& c) {
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].Run(c.output<char>(0), c.input<char>(static_cast<int>(i)));
    }
  });
}

// ConcatGrad, Split and Unstack.
Result<KernelPtr> MakeCut(const KernelSpec& spec) {
  return KernelOf([copies = CopiesOf(spec.inputs[0].dtype, CutMoves(spec))](
                      const KernelContext& c) {
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].Run(c.output<char>(static_cast<int>(i)), c.input<char>(0));
    }
  });
}

// Sums tiles: an element of the result is at offset(i) in the first tile and
// at offset(i) + tile offset in the others.
struct TileSum {
  Shape shape, multiples;
  std::array<int64_t, Shape::kMaxRank> strides{}, tile_strides{};

  template <typename T>
  T At(const T* dy, int64_t i) const {
    int64_t at = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      at += i % shape[d] * strides[d];
      i /= shape[d];
    }
    // Very many of one sign would lose their last digits in float, and doubles
    // theirs in one sum.
    constexpr int kRun = 128;
    using C = ComputeType<T>;
    std::conditional_t<std::is_floating_point_v<C>, double, C> sum = 0, run = 0;
    int terms = 0;  // of the run
    std::array<int64_t, Shape::kMaxRank> tile{};
    for (int d = 0; d >= 0;) {
      run += static_cast<C>(dy[at]);
      if (++terms == kRun) {
        sum += run;
        run = 0;
        terms = 0;
      }
      for (d = shape.rank() - 1; d >= 0; --d) {
        at += tile_strides[d];
        if (++tile[d] < multiples[d]) break;
        at -= multiples[d] * tile_strides[d];
        tile[d] = 0;
      }
    }
    sum += run;
    return T(static_cast<C>(sum));
  }
};

Result<KernelPtr> MakeTileGrad(const KernelSpec& spec) {
  TileSum tiles;
  tiles.shape = spec.outputs[0].shape;
  tiles.multiples =
      Shape(std::span<const int64_t>(spec.attrs.Ints("multiples")));
  tiles.strides = Strides(spec.inputs[0].shape);
  for (int d = 0; d < tiles.shape.rank(); ++d) {
    tiles.tile_strides[d] = tiles.strides[d] * tiles.shape[d];
  }
  const int64_t n = tiles.shape.elements();
  // Of no elements there may be more tiles than int64 counts.
  const int64_t repeats = n == 0 ? 1 : tiles.multiples.elements();
  const int64_t grain = std::max<int64_t>((1 << 12) / repeats, 1);
  return DispatchDType(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        return KernelOf([tiles, n, grain](const KernelContext& c) {
          const T* dy = c.input<T>(0);
          T* dx = c.output<T>(0);
          ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) dx[i] = tiles.At(dy, i);
          });
        });
      });
}

}  // namespace

void RegisterArrayKernels(KernelTable& table) {
  table.Register({.op = "Concat", .make = MakeJoin});
  table.Register({.op = "Stack", .make = MakeJoin});
  table.Register({.op = "ConcatGrad", .make = MakeCut});
  table.Register({.op = "Split", .make = MakeCut});
  table.Register({.op = "Unstack", .make = MakeCut});
  table.Register({.op = "Tile", .make = MakeMove});
  table.Register({.op = "TileGrad", .dtypes = kNumeric, .make = MakeTileGrad});
  table.Register({.op = "Reverse", .make = MakeMove});
}

}  // namespace sluice::cpu
