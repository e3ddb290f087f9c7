#include "engine/attributes.h"

#include <bit>
#include <string>

namespace sluice {

std::string_view NameOf(AttrType type) {
  constexpr std::string_view kNames[] = {"bool",   "int",    "float",
                                         "string", "dtype",  "ints",
                                         "shape",  "tensor", "number"};
  return kNames[static_cast<int>(type)];
}

bool operator==(const AttrValue& a, const AttrValue& b) {
  if (a.type() != b.type()) return false;
  if (a.type() == AttrType::kTensor) {
    return a.get<Tensor>().BitEqual(b.get<Tensor>());
  }
  return std::visit(
      [&]<typename T>(const T& value) {
        if constexpr (std::is_same_v<T, Tensor>) {
          return false;
        } else if constexpr (std::is_same_v<T, double>) {
          return std::bit_cast<uint64_t>(value) ==
                 std::bit_cast<uint64_t>(b.get<double>());
        } else {
          return value == b.get<T>();
        }
      },
      a.variant());
}

const AttrValue* Attributes::Find(std::string_view name) const {
  auto it = map_.find(name);
  return it == map_.end() ? nullptr : &it->second;
}

Number Attributes::NumberOf(std::string_view name) const {
  const AttrValue& value = At(name);
  if (value.type() == AttrType::kInt) return value.get<int64_t>();
  return value.get<double>();
}

const AttrValue& Attributes::At(std::string_view name) const {
  const AttrValue* value = Find(name);
  if (value == nullptr) {
    CheckFailed(("there is attribute '" + std::string(name) + "'").c_str(),
                __FILE__, __LINE__);
  }
  return *value;
}

}  // namespace sluice
