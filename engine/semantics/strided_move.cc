#include "engine/semantics/strided_move.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "engine/semantics/slicing.h"

namespace sluice {

void StridedMove::Add(int64_t size, int64_t to_stride, int64_t from_stride) {
  if (size == 1) return;
  const Dim dim{size, to_stride, from_stride};
  if (rank > 0) {
    Dim& outer = dims[rank - 1];
    if (outer.to == size * dim.to && outer.from == size * dim.from) {
      outer = {outer.size * size, dim.to, dim.from};
      return;
    }
  }
  SLUICE_CHECK(rank < kMaxDims);
  dims[rank++] = dim;
}

int64_t StridedMove::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank; ++i) product *= dims[i].size;
  return product;
}

namespace {

using DimStrides = std::array<int64_t, Shape::kMaxRank>;

// --- All of a result, from any place of an operand ---------------------------

StridedMove TransposeMove(const Shape& x, const Shape& y,
                          const std::vector<int64_t>& permutation) {
  const DimStrides from = Strides(x), to = Strides(y);
  StridedMove move;
  for (int i = 0; i < y.rank(); ++i) {
    const auto axis = permutation.empty() ? y.rank() - 1 - i : permutation[i];
    move.Add(y[i], to[i], from[axis]);
  }
  return move;
}

StridedMove BroadcastMove(const Shape& x, const Shape& y) {
  const DimStrides from = Strides(x), to = Strides(y);
  const int missing = y.rank() - x.rank();
  StridedMove move;
  for (int i = 0; i < y.rank(); ++i) {
    const int axis = i - missing;
    move.Add(y[i], to[i], axis < 0 || x[axis] == 1 ? 0 : from[axis]);
  }
  return move;
}

StridedMove TileMove(const Shape& x, const Shape& y,
                     const std::vector<int64_t>& multiples) {
  const DimStrides from = Strides(x), to = Strides(y);
  StridedMove move;
  for (int i = 0; i < x.rank(); ++i) {
    move.Add(multiples[i], to[i] * x[i], 0);
    move.Add(x[i], to[i], from[i]);
  }
  return move;
}

StridedMove ReverseMove(const Shape& x, const std::vector<int64_t>& axes) {
  const DimStrides strides = Strides(x);
  std::array<bool, Shape::kMaxRank> turned{};
  for (int64_t axis : axes) turned[axis < 0 ? axis + x.rank() : axis] = true;
  StridedMove move;
  for (int i = 0; i < x.rank(); ++i) {
    move.Add(x[i], strides[i], turned[i] ? -strides[i] : strides[i]);
    if (turned[i]) move.from_offset += (x[i] - 1) * strides[i];
  }
  return move;
}

// --- Parts of arrays ---------------------------------------------------------

// Where a part of an array starts and the strides its elements have there.
struct Part {
  int64_t offset = 0;
  DimStrides strides{};
};

StridedMove FromPart(const Part& part, const Shape& to) {
  const DimStrides strides = Strides(to);
  StridedMove move;
  for (int i = 0; i < to.rank(); ++i) {
    move.Add(to[i], strides[i], part.strides[i]);
  }
  move.from_offset = part.offset;
  return move;
}

StridedMove ToPart(const Part& part, const Shape& from) {
  const DimStrides strides = Strides(from);
  StridedMove move;
  for (int i = 0; i < from.rank(); ++i) {
    move.Add(from[i], part.strides[i], strides[i]);
  }
  move.to_offset = part.offset;
  return move;
}

// What begin, end, strides and the masks take from an array of shape x.
Part StridedPart(const Attributes& attrs, const Shape& x) {
  const auto& begin = attrs.Ints("begin");
  const auto& end = attrs.Ints("end");
  const auto& strides = attrs.Ints("strides");
  Part part{.strides = Strides(x)};
  for (size_t i = 0; i < begin.size(); ++i) {
    const bool from_start = attrs.Int("begin_mask") >> i & 1;
    const bool to_end = attrs.Int("end_mask") >> i & 1;
    const SliceRange range =
        ResolveSlice(from_start ? std::nullopt : std::optional(begin[i]),
                     to_end ? std::nullopt : std::optional(end[i]), strides[i],
                     x[static_cast<int>(i)]);
    part.offset += range.start * part.strides[i];
    part.strides[i] *= range.stride;
  }
  return part;
}

// The part of x that begins at `begin`.
Part PartFrom(const std::vector<int64_t>& begin, const Shape& x) {
  Part part{.strides = Strides(x)};
  for (size_t i = 0; i < begin.size(); ++i) {
    part.offset += begin[i] * part.strides[i];
  }
  return part;
}

// The amounts before each dimension.
std::vector<int64_t> Before(const std::vector<int64_t>& paddings) {
  std::vector<int64_t> before;
  for (size_t i = 0; i < paddings.size(); i += 2) before.push_back(paddings[i]);
  return before;
}

// --- Whole and parts ---------------------------------------------------------

// Moves between the whole and its parts, which lie one after another within
// each of `outer` rows of the whole; a part has `sizes` contiguous elements of
// each row.
std::vector<StridedMove> PartMoves(int64_t outer,
                                   const std::vector<int64_t>& sizes,
                                   bool to_whole) {
  int64_t row = 0;
  for (int64_t size : sizes) row += size;
  std::vector<StridedMove> moves;
  int64_t offset = 0;
  for (int64_t size : sizes) {
    StridedMove move;
    move.Add(outer, to_whole ? row : size, to_whole ? size : row);
    move.Add(size, 1, 1);
    (to_whole ? move.to_offset : move.from_offset) = offset;
    moves.push_back(move);
    offset += size;
  }
  return moves;
}

// `parts` are what `whole` consists of along the attribute "axis".
std::vector<StridedMove> PartMoves(const KernelSpec& spec, const Shape& whole,
                                   const std::vector<TensorType>& parts,
                                   bool to_whole) {
  const int given = static_cast<int>(spec.attrs.Int("axis"));
  const int axis = given < 0 ? given + whole.rank() : given;
  std::vector<int64_t> sizes;
  for (const TensorType& part : parts) {
    sizes.push_back(part.shape.elements(axis, part.shape.rank()));
  }
  return PartMoves(whole.elements(0, axis), sizes, to_whole);
}

}  // namespace

StridedMove MoveOf(const KernelSpec& spec) {
  using Move =
      StridedMove (*)(const Attributes& attrs, const Shape& x, const Shape& y);
  struct Row {
    std::string_view op;
    Move move;
  };
  static constexpr Row kRows[] = {
      {"Transpose",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return TransposeMove(x, y, attrs.Ints("permutation"));
       }},
      {"BroadcastTo", [](const Attributes&, const Shape& x,
                         const Shape& y) { return BroadcastMove(x, y); }},
      {"Tile",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return TileMove(x, y, attrs.Ints("multiples"));
       }},
      {"Reverse",
       [](const Attributes& attrs, const Shape& x, const Shape&) {
         return ReverseMove(x, attrs.Ints("axes"));
       }},
      {"Slice",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return FromPart(PartFrom(attrs.Ints("begin"), x), y);
       }},
      {"StridedSlice",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return FromPart(StridedPart(attrs, x), y);
       }},
      {"Pad",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return ToPart(PartFrom(Before(attrs.Ints("paddings")), y), x);
       }},
      {"StridedSliceGrad",
       [](const Attributes& attrs, const Shape& x, const Shape& y) {
         return ToPart(StridedPart(attrs, y), x);
       }},
  };
  const auto* const row =
      std::find_if(std::begin(kRows), std::end(kRows),
                   [&](const Row& r) { return r.op == spec.op; });
  SLUICE_CHECK(row != std::end(kRows));
  const Shape& x = spec.inputs[0].shape;
  const Shape& y = spec.outputs[0].shape;
  if (x.elements() > 0 && y.elements() > 0) return row->move(spec.attrs, x, y);
  // Strides beside a dimension of size 0 may be any, and their products with
  // the other dimensions beyond int64.
  StridedMove nothing;
  nothing.Add(0, 1, 1);
  return nothing;
}

Tensor SurroundingOf(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  if (!spec.attrs.Has("value")) return Tensor::Full(dtype, {}, 0);
  const Number value = spec.attrs.NumberOf("value");
  // In mixed precision a float32 may have become a half that is infinite.
  return IsFloating(dtype)
             ? Tensor::Full(DType::kFloat64, {}, value).Cast(dtype)
             : Tensor::Full(dtype, {}, value);
}

std::vector<StridedMove> JoinMoves(const KernelSpec& spec) {
  return PartMoves(spec, spec.outputs[0].shape, spec.inputs, true);
}

std::vector<StridedMove> CutMoves(const KernelSpec& spec) {
  return PartMoves(spec, spec.inputs[0].shape, spec.outputs, false);
}

}  // namespace sluice
