// Putting tensors together, cutting them up, repeating and reversing them: a
// strided copy for each, or for each part.
#include <vector>

#include "engine/threads.h"
#include "kernels/cpu/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Copies between the whole and its parts, which lie one after another within
// each of `outer` rows of the whole; sizes[i] contiguous elements of part i
// per row.
std::vector<StridedCopy> PartCopies(DType dtype, int64_t outer,
                                    const std::vector<int64_t>& sizes,
                                    bool to_whole) {
  int64_t row = 0;
  for (int64_t size : sizes) row += size;
  std::vector<StridedCopy> copies;
  int64_t offset = 0;
  for (int64_t size : sizes) {
    StridedCopy copy(dtype);
    copy.Add(outer, to_whole ? row : size, to_whole ? size : row);
    copy.Add(size, 1, 1);
    copy.SetOffsets(to_whole ? offset : 0, to_whole ? 0 : offset);
    copy.Prepare();
    copies.push_back(copy);
    offset += size;
  }
  return copies;
}

// The axis attribute for a tensor of this rank.
int AxisOf(const KernelSpec& spec, int rank) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  return axis < 0 ? axis + rank : axis;
}

// Elements of each part in one row; a part's row starts at dimension `axis`.
std::vector<int64_t> RowSizes(const std::vector<TensorType>& parts, int axis) {
  std::vector<int64_t> sizes;
  for (const TensorType& part : parts) {
    sizes.push_back(part.shape.elements(axis, part.shape.rank()));
  }
  return sizes;
}

// Concat and Stack.
Result<KernelPtr> MakeJoin(const KernelSpec& spec) {
  const Shape& whole = spec.outputs[0].shape;
  const int axis = AxisOf(spec, whole.rank());
  return KernelOf(
      [copies = PartCopies(spec.outputs[0].dtype, whole.elements(0, axis),
                           RowSizes(spec.inputs, axis),
                           true)](const KernelContext& c) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(c.output<char>(0), c.input<char>(static_cast<int>(i)));
        }
      });
}

// ConcatGradient, Split and Unstack.
Result<KernelPtr> MakeCut(const KernelSpec& spec) {
  const Shape& whole = spec.inputs[0].shape;
  const int axis = AxisOf(spec, whole.rank());
  return KernelOf(
      [copies = PartCopies(spec.inputs[0].dtype, whole.elements(0, axis),
                           RowSizes(spec.outputs, axis),
                           false)](const KernelContext& c) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(c.output<char>(static_cast<int>(i)), c.input<char>(0));
        }
      });
}

Result<KernelPtr> MakeTile(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const auto from = Strides(x), to = Strides(spec.outputs[0].shape);
  const std::vector<int64_t>& multiples = spec.attrs.Ints("multiples");
  StridedCopy copy(spec.inputs[0].dtype);
  for (int i = 0; i < x.rank(); ++i) {
    copy.Add(multiples[i], to[i] * x[i], 0);
    copy.Add(x[i], to[i], from[i]);
  }
  copy.Prepare();
  return KernelOf([copy](const KernelContext& c) {
    copy.Run(c.output<char>(0), c.input<char>(0));
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
    ComputeType<T> sum = 0;
    std::array<int64_t, Shape::kMaxRank> tile{};
    for (int d = 0; d >= 0;) {
      sum += static_cast<ComputeType<T>>(dy[at]);
      for (d = shape.rank() - 1; d >= 0; --d) {
        at += tile_strides[d];
        if (++tile[d] < multiples[d]) break;
        at -= multiples[d] * tile_strides[d];
        tile[d] = 0;
      }
    }
    return T(sum);
  }
};

Result<KernelPtr> MakeTileGradient(const KernelSpec& spec) {
  TileSum tiles;
  tiles.shape = spec.outputs[0].shape;
  tiles.multiples =
      Shape(std::span<const int64_t>(spec.attrs.Ints("multiples")));
  tiles.strides = Strides(spec.inputs[0].shape);
  for (int d = 0; d < tiles.shape.rank(); ++d) {
    tiles.tile_strides[d] = tiles.strides[d] * tiles.shape[d];
  }
  const int64_t n = tiles.shape.elements();
  const int64_t repeats = tiles.multiples.elements();
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

Result<KernelPtr> MakeReverse(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const auto strides = Strides(x);
  std::array<bool, Shape::kMaxRank> turned{};
  for (int64_t axis : spec.attrs.Ints("axes")) {
    turned[axis < 0 ? axis + x.rank() : axis] = true;
  }
  StridedCopy copy(spec.inputs[0].dtype);
  int64_t last = 0;
  for (int i = 0; i < x.rank(); ++i) {
    copy.Add(x[i], strides[i], turned[i] ? -strides[i] : strides[i]);
    if (turned[i]) last += (x[i] - 1) * strides[i];
  }
  copy.SetOffsets(0, last);
  copy.Prepare();
  return KernelOf([copy](const KernelContext& c) {
    copy.Run(c.output<char>(0), c.input<char>(0));
  });
}

}  // namespace

void RegisterArrayKernels(KernelTable& table) {
  table.Register({.op = "Concat", .make = MakeJoin});
  table.Register({.op = "Stack", .make = MakeJoin});
  table.Register({.op = "ConcatGradient", .make = MakeCut});
  table.Register({.op = "Split", .make = MakeCut});
  table.Register({.op = "Unstack", .make = MakeCut});
  table.Register({.op = "Tile", .make = MakeTile});
  table.Register(
      {.op = "TileGradient", .dtypes = kNumeric, .make = MakeTileGradient});
  table.Register({.op = "Reverse", .make = MakeReverse});
}

}  // namespace sluice::cpu
