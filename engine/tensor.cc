#include "engine/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/ceil_div.h"
#include "engine/convert.h"

namespace sluice {
namespace {

// Pages of x86 and of most aarch64 systems. A large buffer in these is taken in
// a 512th of the page faults and needs as few entries of the TLB.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;

}  // namespace

std::shared_ptr<void> AllocateBuffer(size_t bytes) {
  const bool huge = bytes >= kLarge;
  const size_t alignment = huge ? kHugePage : kAlignment;
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), alignment);
  void* data = std::aligned_alloc(alignment, rounded);
  // What follows the last whole page would be zeroed for nothing. Where the
  // system has no huge pages it stays as it is.
  if (huge && data != nullptr) {
    (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  if (data == nullptr) {
    throw Error(Code::kResourceExhausted, "out of memory: could not allocate " +
                                              std::to_string(bytes) + " bytes");
  }
  return {data, std::free};
}

Status CheckTensorSize(DType dtype, const Shape& shape) {
  int64_t room = kMaxTensorBytes / static_cast<int64_t>(SizeOf(dtype));
  for (int64_t d : shape) {
    if (d < kUnknown) {
      return InvalidArgument("negative dimension in " + shape.ToString());
    }
    if (d > room) {
      return InvalidArgument(std::string(NameOf(dtype)) + shape.ToString() +
                             " is larger than any tensor can be (2^47 bytes)");
    }
    room /= std::max<int64_t>(d, 1);
  }
  return {};
}

Tensor::Tensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape) {
  if (!shape.concrete()) {
    throw Error(Code::kInvalidArgument,
                "a tensor needs a concrete shape, got " + shape.ToString());
  }
  if (Status size = CheckTensorSize(dtype, shape); !size.ok()) {
    throw Error(size);
  }
  owner_ = AllocateBuffer(bytes());
  data_ = owner_.get();
}

Tensor::Tensor(DType dtype, const Shape& shape, std::shared_ptr<void> owner,
               void* data)
    : dtype_(dtype), shape_(shape), owner_(std::move(owner)), data_(data) {}

Tensor Tensor::Full(DType dtype, const Shape& shape, const Number& value) {
  if (Status held = CheckHolds(dtype, value); !held.ok()) throw Error(held);
  Tensor t(dtype, shape);
  DispatchDType(dtype, [&]<typename T>(TypeTag<T>) {
    const T element = std::is_integral_v<T> ? Convert<T>(value.integer())
                                            : Convert<T>(value.real());
    std::fill_n(t.data<T>(), t.elements(), element);
  });
  return t;
}

double Tensor::At(int64_t i) const {
  return DispatchDType(dtype_, [&]<typename T>(TypeTag<T>) {
    return Convert<double>(data<T>()[i]);
  });
}

int64_t Tensor::IntAt(int64_t i) const {
  return DispatchDType(dtype_, [&]<typename T>(TypeTag<T>) {
    return Convert<int64_t>(data<T>()[i]);
  });
}

Tensor Tensor::Clone() const {
  Tensor copy(dtype_, shape_);
  if (bytes() > 0) std::memcpy(copy.data_, data_, bytes());
  return copy;
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  if (!shape.concrete() || shape.elements() != elements()) {
    throw Error(Code::kInvalidArgument, "cannot view a tensor of shape " +
                                            shape_.ToString() + " as " +
                                            shape.ToString());
  }
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || end < begin || end > shape_[0]) {
    throw Error(Code::kOutOfRange,
                "rows [" + std::to_string(begin) + "," + std::to_string(end) +
                    ") of a tensor of shape " + shape_.ToString());
  }
  Tensor view = *this;
  view.shape_.set(0, end - begin);
  const int64_t row = shape_.elements(1, shape_.rank());
  view.data_ = static_cast<char*>(data_) + begin * row * SizeOf(dtype_);
  return view;
}

Tensor Tensor::Cast(DType dtype) const {
  Tensor out(dtype, shape_);
  DispatchDType(dtype_, [&]<typename From>(TypeTag<From>) {
    DispatchDType(dtype, [&]<typename To>(TypeTag<To>) {
      const From* in = data<From>();
      To* result = out.data<To>();
      for (int64_t i = 0; i < elements(); ++i) {
        result[i] = Convert<To>(in[i]);
      }
    });
  });
  return out;
}

bool Tensor::BitEqual(const Tensor& other) const {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         (bytes() == 0 || std::memcmp(data_, other.data_, bytes()) == 0);
}

std::string Tensor::ToString(int limit) const {
  std::string out = std::string(NameOf(dtype_)) + shape_.ToString() + " {";
  for (int64_t i = 0; i < elements(); ++i) {
    if (i > 0) out += ", ";
    if (i == limit) {
      out += "...";
      break;
    }
    char text[32];
    if (IsFloating(dtype_)) {
      std::snprintf(text, sizeof(text), "%.7g", At(i));
    } else {
      std::snprintf(text, sizeof(text), "%lld",
                    static_cast<long long>(IntAt(i)));
    }
    out += text;
  }
  return out + "}";
}

void Tensor::CheckCount(size_t count) const {
  if (count != static_cast<size_t>(elements())) {
    throw Error(Code::kInvalidArgument,
                "a tensor of shape " + shape_.ToString() + " needs " +
                    std::to_string(elements()) + " values, got " +
                    std::to_string(count));
  }
}

}  // namespace sluice
