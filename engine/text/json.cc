#include "engine/text/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/status.h"

namespace sluice {
namespace {

using Library = nlohmann::ordered_json;

struct ToLibrary {
  Library operator()(const std::vector<Json>& items) const {
    Library array = Library::array();
    for (const Json& item : items) {
      array.push_back(std::visit(*this, item.value()));
    }
    return array;
  }
  Library operator()(const Json::Fields& fields) const {
    Library object = Library::object();
    for (size_t i = 0; i < fields.names.size(); ++i) {
      object[fields.names[i]] = std::visit(*this, fields.values[i].value());
    }
    return object;
  }
  Library operator()(const auto& value) const { return value; }
};

std::string TextOf(const Json& json, int indentation,
                   Library::error_handler_t bad_utf8) {
  return std::visit(ToLibrary(), json.value())
      .dump(indentation, ' ', /*ensure_ascii=*/false, bad_utf8);
}

}  // namespace

Json::Json(std::initializer_list<Field> fields) : value_(Fields()) {
  for (const Field& field : fields) (*this)[field.name] = field.value;
}

Json& Json::operator[](std::string_view name) {
  if (std::holds_alternative<std::nullptr_t>(value_)) value_ = Fields();
  auto* const fields = std::get_if<Fields>(&value_);
  SLUICE_CHECK(fields != nullptr);
  const auto found =
      std::find(fields->names.begin(), fields->names.end(), name);
  if (found != fields->names.end()) {
    return fields->values[static_cast<size_t>(found - fields->names.begin())];
  }
  fields->names.emplace_back(name);
  return fields->values.emplace_back();
}

void Json::Update(const Json& other) {
  const auto* const fields = std::get_if<Fields>(&other.value_);
  SLUICE_CHECK(fields != nullptr);
  for (size_t i = 0; i < fields->names.size(); ++i) {
    (*this)[fields->names[i]] = fields->values[i];
  }
}

Json& Json::Add(Json value) {
  if (std::holds_alternative<std::nullptr_t>(value_)) {
    value_ = std::vector<Json>();
  }
  auto* const items = std::get_if<std::vector<Json>>(&value_);
  SLUICE_CHECK(items != nullptr);
  return items->emplace_back(std::move(value));
}

std::string Json::Text() const {
  try {
    return TextOf(*this, -1, Library::error_handler_t::strict);
  } catch (const Library::exception& error) {
    throw Error(Code::kInvalidArgument, error.what());
  }
}

std::string Json::LenientText(int indentation) const {
  return TextOf(*this, indentation, Library::error_handler_t::replace);
}

bool IsUtf8(std::string_view text) {
  try {
    (void)Library(text).dump();
    return true;
  } catch (const Library::exception&) {
    return false;
  }
}

}  // namespace sluice
