#include "engine/text/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

namespace sluice {

namespace {
using Value = nlohmann::json;
}  // namespace

struct JsonObject::Fields {
  std::shared_ptr<const Value> root;
  const Value* object;  // in it: a copy might recurse as deep as the text

  // The field if it `is` what the caller wants, else an error.
  template <typename Is>
  Result<const Value*> Find(const std::string& name, const char* wanted,
                            Is is) const {
    const auto found = object->find(name);
    if (found == object->end()) {
      return InvalidArgument(fmt::format("there is no \"{}\"", name));
    }
    if (std::invoke(is, *found)) return &*found;
    return InvalidArgument(fmt::format(
        "\"{}\" is {}, not {}", name,
        found->is_number() ? found->dump() : found->type_name(), wanted));
  }
  template <typename T, typename Is>
  Result<T> Get(const std::string& name, const char* wanted, Is is) const {
    SLUICE_ASSIGN_OR_RETURN(const Value* value, Find(name, wanted, is));
    return value->get<T>();
  }
};

namespace {

bool IsInt64(const Value& value) {
  // What is parsed is unsigned unless it has a minus.
  return value.is_number_unsigned()
             ? value.get<uint64_t>() <=
                   uint64_t{std::numeric_limits<int64_t>::max()}
             : value.is_number_integer();
}

bool IsStrings(const Value& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(),
                     [](const Value& item) { return item.is_string(); });
}

bool IsInts(const Value& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), IsInt64);
}

}  // namespace

Result<JsonObject> JsonObject::Parse(std::string_view text) {
  Value json = Value::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("it is no JSON object");
  const auto root = std::make_shared<const Value>(std::move(json));
  return JsonObject(std::make_shared<Fields>(Fields{root, root.get()}));
}

bool JsonObject::Has(const std::string& name) const {
  return fields_->object->contains(name);
}

std::vector<std::string> JsonObject::names() const {
  std::vector<std::string> names;
  for (const auto& field : fields_->object->items()) {
    names.push_back(field.key());
  }
  return names;
}

Result<bool> JsonObject::Bool(const std::string& name) const {
  return fields_->Get<bool>(name, "true or false", &Value::is_boolean);
}

Result<int64_t> JsonObject::Int(const std::string& name) const {
  return fields_->Get<int64_t>(name, "an int64", IsInt64);
}

Result<uint64_t> JsonObject::Unsigned(const std::string& name) const {
  return fields_->Get<uint64_t>(name, "an unsigned 64-bit integer",
                                &Value::is_number_unsigned);
}

Result<double> JsonObject::Double(const std::string& name) const {
  return fields_->Get<double>(name, "a number", &Value::is_number);
}

Result<std::string> JsonObject::String(const std::string& name) const {
  return fields_->Get<std::string>(name, "a string", &Value::is_string);
}

Result<std::vector<std::string>> JsonObject::Strings(
    const std::string& name) const {
  return fields_->Get<std::vector<std::string>>(name, "a list of strings",
                                                IsStrings);
}

Result<std::vector<int64_t>> JsonObject::Ints(const std::string& name) const {
  return fields_->Get<std::vector<int64_t>>(name, "a list of int64", IsInts);
}

Result<JsonObject> JsonObject::Object(const std::string& name) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value,
                          fields_->Find(name, "an object", &Value::is_object));
  return JsonObject(std::make_shared<Fields>(Fields{fields_->root, value}));
}

Result<std::vector<std::string>> ParseJsonStrings(std::string_view text) {
  const Value json = Value::parse(text, nullptr, /*allow_exceptions=*/false);
  if (IsStrings(json)) return json.get<std::vector<std::string>>();
  return InvalidArgument("it is no list of strings");
}

}  // namespace sluice
