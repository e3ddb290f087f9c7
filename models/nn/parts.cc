#include "models/nn/parts.h"

#include <cstring>

#include "engine/ceil_div.h"
#include "engine/runtime/subtrees.h"
#include "engine/status.h"

namespace sluice {
namespace {

// Where a rank's part lies in a row of the whole, in bytes.
struct Place {
  Place(const Tensor& whole, int64_t rank, int64_t workers) {
    const auto width = static_cast<int64_t>(SizeOf(whole.dtype()));
    const LeafRange mine = LeavesOf(whole.shape()[-1], rank, workers);
    row = whole.shape()[-1] * width;
    offset = mine.begin * width;
    bytes = mine.size() * width;
    part_row = PartWidth(whole.shape()[-1], workers) * width;
    rows = row == 0 ? 0 : static_cast<int64_t>(whole.bytes()) / row;
  }
  int64_t rows = 0, row = 0, offset = 0, bytes = 0, part_row = 0;
};

}  // namespace

int64_t PartWidth(int64_t size, int64_t workers) {
  return CeilDiv(size, workers);
}

Shape WholeShape(Shape shape, int64_t size) {
  shape.set(shape.rank() - 1, size);
  return shape;
}

Tensor PartOf(const Tensor& whole, int64_t rank, int64_t workers) {
  const Place place(whole, rank, workers);
  Tensor part = Tensor::Zeros(
      whole.dtype(),
      WholeShape(whole.shape(), PartWidth(whole.shape()[-1], workers)));
  const auto* from = static_cast<const char*>(whole.raw()) + place.offset;
  auto* to = static_cast<char*>(part.raw());
  for (int64_t i = 0; i < place.rows; ++i) {
    std::memcpy(to + i * place.part_row, from + i * place.row,
                static_cast<size_t>(place.bytes));
  }
  return part;
}

void PutPart(const Tensor& part, int64_t rank, int64_t workers, Tensor* whole) {
  const Place place(*whole, rank, workers);
  SLUICE_CHECK(part.dtype() == whole->dtype() &&
               static_cast<int64_t>(part.bytes()) ==
                   place.rows * place.part_row);
  const auto* from = static_cast<const char*>(part.raw());
  auto* to = static_cast<char*>(whole->raw()) + place.offset;
  for (int64_t i = 0; i < place.rows; ++i) {
    std::memcpy(to + i * place.row, from + i * place.part_row,
                static_cast<size_t>(place.bytes));
  }
}

}  // namespace sluice
