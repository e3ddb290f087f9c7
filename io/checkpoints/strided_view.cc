#include "io/checkpoints/strided_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/allocate.h"

namespace sluice {
namespace {

bool RowMajor(const StridedView& view) {
  int64_t stride = 1;
  for (int d = view.shape.rank() - 1; d >= 0; --d) {
    if (view.shape[d] > 1 && view.strides[d] != stride) return false;
    stride *= view.shape[d];
  }
  return true;
}

// `out` has room for the elements, each of kWidth bytes.
template <size_t kWidth>
void GatherElements(const StridedView& view, char* out) {
  std::array<int64_t, Shape::kMaxRank> index{};
  // Those without a step may be anything; 0 never overflows.
  std::array<int64_t, Shape::kMaxRank> strides{};
  const int rank = view.shape.rank();
  for (int d = 0; d < rank; ++d) {
    if (view.shape[d] > 1) strides[d] = view.strides[d];
  }
  int64_t from = view.offset;
  for (int64_t left = view.shape.elements(); left > 0; --left, out += kWidth) {
    std::memcpy(out, view.storage.data() + from * int64_t{kWidth}, kWidth);
    for (int d = rank - 1; d >= 0; --d) {
      from += strides[d];
      if (++index[d] < view.shape[d]) break;
      from -= strides[d] * index[d];
      index[d] = 0;
    }
  }
}

}  // namespace

Status CheckView(const StridedView& view) {
  if (const Status size = CheckTensorSize(view.dtype, view.shape); !size.ok()) {
    return DataLoss(size.message());
  }
  const auto elements =
      static_cast<int64_t>(view.storage.size() / SizeOf(view.dtype));
  const auto outside = [&] {
    return DataLoss(fmt::format(
        "shape {} from element {} does not fit in a storage of {} elements",
        view.shape.ToString(), view.offset, elements));
  };
  if (!view.shape.concrete() || view.offset < 0 || view.offset > elements) {
    return outside();
  }
  if (view.shape.elements() == 0) return {};
  int64_t room = elements - view.offset - 1;  // behind the first element
  if (room < 0) return outside();
  for (int d = 0; d < view.shape.rank(); ++d) {
    if (view.strides[d] < 0) return DataLoss("a negative stride");
    const int64_t steps = view.shape[d] - 1;
    if (steps == 0 || view.strides[d] == 0) continue;
    if (steps > room / view.strides[d]) return outside();
    room -= steps * view.strides[d];
  }
  return {};
}

Result<Tensor> Gather(const StridedView& view) {
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor,
                          AllocateTensor(view.dtype, view.shape));
  if (tensor.elements() == 0) return tensor;
  const size_t width = SizeOf(view.dtype);
  char* out = static_cast<char*>(tensor.raw());
  if (RowMajor(view)) {
    std::memcpy(out, view.storage.data() + view.offset * width, tensor.bytes());
  } else if (width == 1) {
    GatherElements<1>(view, out);
  } else if (width == 2) {
    GatherElements<2>(view, out);
  } else if (width == 4) {
    GatherElements<4>(view, out);
  } else {
    GatherElements<8>(view, out);
  }
  return tensor;
}

}  // namespace sluice
