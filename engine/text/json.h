// JSON to be written; engine/text/json_object.h reads it. The JSON library
// takes each file that includes it 4 to 16 s to compile, so that few do.
#ifndef SLUICE_ENGINE_TEXT_JSON_H_
#define SLUICE_ENGINE_TEXT_JSON_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// A value: null, a number, a text, an array, or an object, whose fields keep
// the order in which they were set.
//
//   Json event = {{"event", "step"}, {"losses", Json::Array()}};
//   event["losses"].Add(0.5);
class Json {
 public:
  struct Field;

  Json() = default;  // null
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}  // NOLINT: converts, as all here
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) {  // NOLINT
    if constexpr (std::is_signed_v<T>) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<uint64_t>(value);
    }
  }
  // What is no finite number is written as null.
  template <std::floating_point T>
  Json(T value) : value_(static_cast<double>(value)) {}       // NOLINT
  Json(std::string text) : value_(std::move(text)) {}         // NOLINT
  Json(std::string_view text) : value_(std::string(text)) {}  // NOLINT
  Json(const char* text) : value_(std::string(text)) {}       // NOLINT
  template <typename T>
  Json(const std::vector<T>& values)  // NOLINT
      : value_(std::vector<Json>(values.begin(), values.end())) {}
  template <typename T>
  Json(std::span<T> values)  // NOLINT
      : value_(std::vector<Json>(values.begin(), values.end())) {}
  template <typename T>
  Json(const std::map<std::string, T>& fields) {  // NOLINT
    value_ = Fields();
    for (const auto& [name, value] : fields) (*this)[name] = value;
  }
  // An object.
  Json(std::initializer_list<Field> fields);  // NOLINT

  static Json Array(const std::vector<Json>& items = {}) { return items; }
  static Json Object() { return std::map<std::string, Json>(); }

  // A field of an object, null where it is new. Null becomes an object, any
  // other value must be one.
  Json& operator[](std::string_view name);
  // Sets the fields of `other`, an object, in this one.
  void Update(const Json& other);
  // To an array, which null becomes and any other value must be. Returns the
  // item there.
  Json& Add(Json value);

  // In one line. Throws Error(kInvalidArgument) where a text is not UTF-8.
  std::string Text() const;
  // Whatever it is: what is not UTF-8 becomes U+FFFD. With an indentation a
  // line for each field and item.
  std::string LenientText(int indentation = -1) const;

  struct Fields {
    std::vector<std::string> names;
    std::vector<Json> values;  // as many
  };
  using Value = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double,
                             std::string, std::vector<Json>, Fields>;
  const Value& value() const { return value_; }

 private:
  Value value_;
};

struct Json::Field {
  std::string name;
  Json value;
};

// Whether JSON can hold it.
bool IsUtf8(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_JSON_H_
