// Parts of tensors and tensors as parts: strided copies, after a fill where
// the rest has to be something.
#include <optional>

#include "engine/slicing.h"
#include "engine/tensor.h"
#include "kernels/cpu/array_copy.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Where a part of an array starts and the strides its elements have there.
struct Part {
  int64_t offset = 0;
  std::array<int64_t, Shape::kMaxRank> strides{};
};

KernelPtr CopyFrom(const Part& part, const TensorType& to) {
  const auto strides = Strides(to.shape);
  StridedCopy copy(to.dtype);
  for (int i = 0; i < to.shape.rank(); ++i) {
    copy.Add(to.shape[i], strides[i], part.strides[i]);
  }
  copy.SetOffsets(0, part.offset);
  copy.Prepare();
  return KernelOf([copy](const KernelContext& c) {
    copy.Run(c.output<char>(0), c.input<char>(0));
  });
}

// Fills the output with `value`, then copies input 0 to the part.
KernelPtr CopyInto(const Part& part, const TensorType& from,
                   const TensorType& to, double value) {
  const auto strides = Strides(from.shape);
  StridedCopy copy(from.dtype);
  for (int i = 0; i < from.shape.rank(); ++i) {
    copy.Add(from.shape[i], part.strides[i], strides[i]);
  }
  copy.SetOffsets(part.offset, 0);
  copy.Prepare();
  return KernelOf([copy, to, element = Tensor::Full(to.dtype, {}, value)](
                      const KernelContext& c) {
    FillElements(to.dtype, c.output<char>(0), to.shape.elements(),
                 element.raw());
    copy.Run(c.output<char>(0), c.input<char>(0));
  });
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

Result<KernelPtr> MakeSlice(const KernelSpec& spec) {
  Part part{.strides = Strides(spec.inputs[0].shape)};
  const auto& begin = spec.attrs.Ints("begin");
  for (size_t i = 0; i < begin.size(); ++i) {
    part.offset += begin[i] * part.strides[i];
  }
  return CopyFrom(part, spec.outputs[0]);
}

Result<KernelPtr> MakeStridedSlice(const KernelSpec& spec) {
  return CopyFrom(StridedPart(spec.attrs, spec.inputs[0].shape),
                  spec.outputs[0]);
}

Result<KernelPtr> MakeStridedSliceGradient(const KernelSpec& spec) {
  return CopyInto(StridedPart(spec.attrs, spec.outputs[0].shape),
                  spec.inputs[0], spec.outputs[0], 0);
}

Result<KernelPtr> MakePad(const KernelSpec& spec) {
  Part part{.strides = Strides(spec.outputs[0].shape)};
  const auto& paddings = spec.attrs.Ints("paddings");
  for (size_t i = 0; i < paddings.size() / 2; ++i) {
    part.offset += paddings[2 * i] * part.strides[i];
  }
  return CopyInto(part, spec.inputs[0], spec.outputs[0],
                  spec.attrs.Float("value"));
}

}  // namespace

void RegisterSliceKernels(KernelTable& table) {
  table.Register({.op = "Slice", .make = MakeSlice});
  table.Register({.op = "StridedSlice", .make = MakeStridedSlice});
  table.Register(
      {.op = "StridedSliceGradient", .make = MakeStridedSliceGradient});
  table.Register({.op = "Pad", .make = MakePad});
}

}  // namespace sluice::cpu
