// A dense row-major array: dtype, shape and a counted slice of a buffer.
// Copying a Tensor shares its buffer; Clone copies the bytes.
#ifndef SLUICE_ENGINE_TENSOR_H_
#define SLUICE_ENGINE_TENSOR_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/dtype.h"
#include "engine/number.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Alignment of every buffer and arena offset, bytes: one cache line, and the
// widest vector register.
inline constexpr size_t kAlignment = 64;

// The most bytes that a tensor may have, so that sums over all tensors of a
// step, and strides, stay within int64. No address space is larger.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 47;
// kInvalidArgument for a tensor of more than kMaxTensorBytes. Dimensions of
// size 0 or kUnknown count as 1, so that neither the bytes nor the strides of
// an accepted shape overflow.
Status CheckTensorSize(DType dtype, const Shape& shape);

class Tensor {
 public:
  Tensor() = default;  // a float32 tensor of shape [0]
  // Uninitialised memory. The shape must be concrete. Throws Error for more
  // than kMaxTensorBytes and when memory runs out.
  Tensor(DType dtype, const Shape& shape);
  // A view of `data`, kept alive by `owner`.
  Tensor(DType dtype, const Shape& shape, std::shared_ptr<void> owner,
         void* data);

  // A scalar, a vector and an array from values.
  template <typename T>
  static Tensor Scalar(T value) {
    Tensor t(DTypeOf<T>::value, {});
    *t.data<T>() = value;
    return t;
  }
  template <typename T>
  static Tensor Vector(std::span<const T> values) {
    return Array(Shape{static_cast<int64_t>(values.size())}, values);
  }
  // values.size() must equal shape.elements(); throws Error otherwise.
  template <typename T>
  static Tensor Array(const Shape& shape, std::span<const T> values) {
    Tensor t(DTypeOf<T>::value, shape);
    t.CheckCount(values.size());
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  template <typename T>
  static Tensor Array(const Shape& shape, std::initializer_list<T> values) {
    return Array(shape, std::span<const T>(values.begin(), values.size()));
  }
  // All elements `value`. Throws Error for a number that dtype cannot hold
  // (CheckHolds).
  static Tensor Full(DType dtype, const Shape& shape, const Number& value);
  static Tensor Zeros(DType dtype, const Shape& shape) {
    return Full(dtype, shape, 0);
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  size_t bytes() const { return elements() * SizeOf(dtype_); }

  // The elements. T must be the dtype's type.
  template <typename T>
  T* data() {
    SLUICE_CHECK(DTypeOf<T>::value == dtype_);
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    SLUICE_CHECK(DTypeOf<T>::value == dtype_);
    return static_cast<const T*>(data_);
  }
  template <typename T>
  std::span<T> values() {
    return {data<T>(), static_cast<size_t>(elements())};
  }
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(elements())};
  }
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  // Element i of the flat array, as a double or integer.
  double At(int64_t i) const;
  int64_t IntAt(int64_t i) const;

  // Whether nothing else shares this tensor's buffer.
  bool owns_alone() const { return owner_.use_count() == 1; }
  Tensor Clone() const;
  // A view with the same bytes; element counts must match.
  Tensor Reshaped(const Shape& shape) const;
  // A view of rows [begin, end) of the first dimension.
  Tensor Rows(int64_t begin, int64_t end) const;
  // A converted copy. Floats to integers truncate towards zero.
  Tensor Cast(DType dtype) const;

  // Same dtype, shape and bits.
  bool BitEqual(const Tensor& other) const;
  // "float32[2,3] {1, 2, 3, ...}", at most `limit` elements.
  std::string ToString(int limit = 8) const;

 private:
  void CheckCount(size_t count) const;

  DType dtype_ = DType::kFloat32;
  Shape shape_{0};
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
};

// Bytes aligned to kAlignment, freed with the last copy. Null-safe for 0 bytes.
// Throws Error(kResourceExhausted) when memory runs out.
std::shared_ptr<void> AllocateBuffer(size_t bytes);

}  // namespace sluice

#endif  // SLUICE_ENGINE_TENSOR_H_
