// Named constants of an op: what a node carries beside its tensors.
#ifndef SLUICE_ENGINE_ATTRIBUTES_H_
#define SLUICE_ENGINE_ATTRIBUTES_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/dtype.h"
#include "engine/number.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// The order of the alternatives is the order of AttrType, up to kTensor.
using AttrVariant = std::variant<bool, int64_t, double, std::string, DType,
                                 std::vector<int64_t>, Shape, Tensor>;
enum class AttrType : uint8_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kDType,
  kInts,
  kShape,  // unlike kInts it may hold unknown dimensions, printed as "?"
  kTensor,
  kNumber,  // of records only: a value is kInt, or kFloat where it is no int64
};
std::string_view NameOf(AttrType type);
// Whether a value of type `given` is what a record declares.
inline bool Fits(AttrType declared, AttrType given) {
  return declared == given ||
         (declared == AttrType::kNumber &&
          (given == AttrType::kInt || given == AttrType::kFloat));
}

class AttrValue {
 public:
  AttrValue() = default;
  AttrValue(bool v) : v_(v) {}                             // NOLINT: implicit
  AttrValue(int v) : v_(int64_t{v}) {}                     // NOLINT
  AttrValue(int64_t v) : v_(v) {}                          // NOLINT
  AttrValue(double v) : v_(v) {}                           // NOLINT
  AttrValue(float v) : v_(double{v}) {}                    // NOLINT
  AttrValue(const char* v) : v_(std::string(v)) {}         // NOLINT
  AttrValue(std::string v) : v_(std::move(v)) {}           // NOLINT
  AttrValue(DType v) : v_(v) {}                            // NOLINT
  AttrValue(std::vector<int64_t> v) : v_(std::move(v)) {}  // NOLINT
  AttrValue(std::initializer_list<int64_t> v)              // NOLINT
      : v_(std::vector<int64_t>(v)) {}
  AttrValue(Shape v) : v_(v) {}              // NOLINT
  AttrValue(Tensor v) : v_(std::move(v)) {}  // NOLINT
  // An integer, or a float where it is none.
  AttrValue(const Number& v)  // NOLINT
      : v_(v.whole() ? AttrVariant(v.integer()) : AttrVariant(v.real())) {}

  AttrType type() const { return static_cast<AttrType>(v_.index()); }
  const AttrVariant& variant() const { return v_; }
  // Requires the right type (the op's definition has checked it).
  template <typename T>
  const T& get() const {
    SLUICE_CHECK(std::holds_alternative<T>(v_));
    return std::get<T>(v_);
  }
  // Floats and tensors compare by bits: 0 is not -0, and NaN is itself.
  SLUICE_PUBLIC friend bool operator==(const AttrValue& a, const AttrValue& b);
  friend bool operator!=(const AttrValue& a, const AttrValue& b) {
    return !(a == b);
  }

 private:
  AttrVariant v_;
};

// Sorted by name, so equal sets print and compare equal.
class Attributes {
 public:
  Attributes() = default;
  Attributes(
      std::initializer_list<std::pair<const std::string, AttrValue>> items)
      : map_(items) {}

  void Set(std::string name, AttrValue value) {
    map_.insert_or_assign(std::move(name), std::move(value));
  }
  const AttrValue* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The op's definition guarantees presence and type; a miss is our own bug.
  bool Bool(std::string_view name) const { return At(name).get<bool>(); }
  int64_t Int(std::string_view name) const { return At(name).get<int64_t>(); }
  double Float(std::string_view name) const { return At(name).get<double>(); }
  Number NumberOf(std::string_view name) const;  // AttrType::kNumber
  const std::string& String(std::string_view name) const {
    return At(name).get<std::string>();
  }
  DType Type(std::string_view name) const { return At(name).get<DType>(); }
  const std::vector<int64_t>& Ints(std::string_view name) const {
    return At(name).get<std::vector<int64_t>>();
  }
  const Shape& ShapeOf(std::string_view name) const {
    return At(name).get<Shape>();
  }
  const Tensor& TensorOf(std::string_view name) const {
    return At(name).get<Tensor>();
  }

  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  bool empty() const { return map_.empty(); }
  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.map_ == b.map_;
  }

 private:
  const AttrValue& At(std::string_view name) const;
  std::map<std::string, AttrValue, std::less<>> map_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_ATTRIBUTES_H_
