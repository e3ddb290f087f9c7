// The kernels of putting tensors together, cutting them up, repeating and
// reversing them: a strided copy for each, or for each part.
#include "kernels/cuda/ops/array/array.h"

#include <vector>

#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// Concat and Stack.
Result<KernelPtr> MakeJoin(const KernelSpec& spec) {
  return KernelOf([moves = JoinMoves(spec), dtype = spec.outputs[0].dtype](
                      const KernelContext& c) -> Status {
    for (size_t i = 0; i < moves.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(CopyStrided("Concat", moves[i], dtype,
                                         c.input<void>(static_cast<int>(i)),
                                         c.output<void>(0), StreamOf(c)));
    }
    return {};
  });
}

// ConcatGrad, Split and Unstack.
Result<KernelPtr> MakeCut(const KernelSpec& spec) {
  return KernelOf([moves = CutMoves(spec), dtype = spec.inputs[0].dtype](
                      const KernelContext& c) -> Status {
    for (size_t i = 0; i < moves.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(
          CopyStrided("Split", moves[i], dtype, c.input<void>(0),
                      c.output<void>(static_cast<int>(i)), StreamOf(c)));
    }
    return {};
  });
}

Result<KernelPtr> MakeTileGrad(const KernelSpec& spec) {
  const Shape& dy = spec.inputs[0].shape;
  const Shape& dx = spec.outputs[0].shape;
  const auto strides = Strides(dy);
  const std::vector<int64_t>& multiples = spec.attrs.Ints("multiples");
  TileShape shape;
  shape.rank = dx.rank();
  shape.elements = dx.elements();
  for (int d = 0; d < dx.rank(); ++d) {
    shape.sizes[d] = dx[d];
    shape.strides[d] = strides[d];
    shape.multiples[d] = multiples[d];
    shape.tile_strides[d] = strides[d] * dx[d];
    // Of no elements there may be more tiles than int64 counts.
    if (shape.elements > 0) shape.tiles *= multiples[d];
  }
  const TileGradLauncher launch = FindTileGrad(spec.inputs[0].dtype);
  return KernelOf([launch, shape](const KernelContext& c) {
    return launch(shape, c.input<void>(0), c.output<void>(0), StreamOf(c));
  });
}

}  // namespace

Result<KernelPtr> MakeMove(const KernelSpec& spec) {
  return KernelOf([move = MoveOf(spec),
                   dtype = spec.outputs[0].dtype](const KernelContext& c) {
    return CopyStrided("Copy", move, dtype, c.input<void>(0), c.output<void>(0),
                       StreamOf(c));
  });
}

void RegisterArrayKernels(KernelTable& table) {
  for (const char* op : {"Concat", "Stack"}) {
    RegisterOwn(table, op, kAnyType, MakeJoin);
  }
  for (const char* op : {"ConcatGrad", "Split", "Unstack"}) {
    RegisterOwn(table, op, kAnyType, MakeCut);
  }
  for (const char* op : {"Tile", "Reverse"}) {
    RegisterOwn(table, op, kAnyType, MakeMove);
  }
  RegisterOwn(table, "TileGrad", kNumeric, MakeTileGrad);
}

}  // namespace sluice::cuda
