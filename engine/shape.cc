#include "engine/shape.h"

#include <algorithm>

namespace sluice {

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) ThrowRank(dims.size());
  for (int64_t d : dims) push_back(d);
}

void Shape::ThrowRank(size_t rank) {
  throw Error(Code::kInvalidArgument,
              "a tensor has at most " + std::to_string(kMaxRank) +
                  " dimensions, got " + std::to_string(rank));
}

bool Shape::concrete() const {
  return std::none_of(begin(), end(), [](int64_t d) { return d < 0; });
}

int64_t Shape::elements(int from, int to) const {
  int64_t product = 1;
  for (int i = from; i < to; ++i) {
    if (dims_[i] < 0) return kUnknown;
    product *= dims_[i];
  }
  return product;
}

Shape Shape::Slice(int from, int to) const {
  Shape out;
  for (int i = from; i < to; ++i) out.push_back(dims_[i]);
  return out;
}

std::string Shape::ToString() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) out += ",";
    out += dims_[i] < 0 ? "?" : std::to_string(dims_[i]);
  }
  return out + "]";
}

bool operator==(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool Compatible(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a[i] >= 0 && b[i] >= 0 && a[i] != b[i]) return false;
  }
  return true;
}

Result<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia];
    const int64_t db = ib < 0 ? 1 : b[ib];
    if (da == db || db == 1) {
      out.push_back(da);
    } else if (da == 1) {
      out.push_back(db);
    } else if (da < 0 || db < 0) {
      out.push_back(std::max(da, db));
    } else {
      return InvalidArgument("shapes do not broadcast: " + a.ToString() +
                             " and " + b.ToString());
    }
  }
  return out;
}

std::array<int64_t, Shape::kMaxRank> Strides(const Shape& shape) {
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Result<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis " + std::to_string(axis) +
                           " is out of range for rank " + std::to_string(rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<int64_t> CheckedElements(std::span<const int64_t> dims) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t product = 1;
  for (int64_t d : dims) {
    if (d < 0) {
      return InvalidArgument("negative dimension " + std::to_string(d));
    }
    if (d != 0 && product > kLimit / d) {
      return InvalidArgument("a tensor of more than 2^62 elements");
    }
    product *= d;
  }
  return product;
}

}  // namespace sluice
