// The kernels of BroadcastTo, Fill, ZerosLike, OnesLike and Range.
#include "kernels/cuda/ops/array/shape_fill.h"

#include <cstring>

#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

// BroadcastTo, and Fill, which broadcasts a scalar; x is input `operand`.
template <int operand>
Result<KernelPtr> MakeBroadcast(const KernelSpec& spec) {
  const BroadcastLauncher launch = FindBroadcastTo(spec.outputs[0].dtype);
  const Broadcast shape =
      BroadcastOf(spec.outputs[0].shape, {&spec.inputs[operand].shape, 1});
  return KernelOf([launch, shape](const KernelContext& c) {
    return launch(c.input<void>(operand), c.output<void>(0), shape,
                  StreamOf(c));
  });
}

template <int value>
Result<KernelPtr> MakeFilledLike(const KernelSpec& spec) {
  const TensorType& type = spec.outputs[0];
  const uint64_t pattern = PatternOf(Tensor::Full(type.dtype, {}, value));
  return KernelOf([pattern, bytes = type.bytes()](const KernelContext& c) {
    return FillBytes(c.output<void>(0), pattern, bytes, StreamOf(c));
  });
}

Result<KernelPtr> MakeRange(const KernelSpec& spec) {
  const RangeLauncher launch = FindRange(spec.outputs[0].dtype);
  const int64_t n = spec.outputs[0].shape.elements();
  return KernelOf([launch, n](const KernelContext& c) {
    return launch(c.input<void>(0), c.input<void>(2), c.output<void>(0), n,
                  StreamOf(c));
  });
}

}  // namespace

uint64_t PatternOf(const Tensor& element) {
  uint64_t pattern = 0;
  for (size_t at = 0; at < sizeof(pattern); at += element.bytes()) {
    std::memcpy(reinterpret_cast<char*>(&pattern) + at, element.raw(),
                element.bytes());
  }
  return pattern;
}

void RegisterShapeFillKernels(KernelTable& table) {
  RegisterOwn(table, "BroadcastTo", kAnyType, MakeBroadcast<0>);
  RegisterOwn(table, "Fill", kAnyType, MakeBroadcast<1>);
  RegisterOwn(table, "ZerosLike", kAnyType, MakeFilledLike<0>);
  RegisterOwn(table, "OnesLike", kAnyType, MakeFilledLike<1>);
  RegisterOwn(table, "Range", kFloatDouble | kIndex, MakeRange);
}

}  // namespace sluice::cuda
