// A JSON object whose fields are read as exactly the type that is asked for.
// The JSON library's own get<T> turns 1.7 into 1 and -1 into 2^64 - 1 without a
// word, and has no defined result for a number beyond the type.
#ifndef SLUICE_ENGINE_TEXT_JSON_OBJECT_H_
#define SLUICE_ENGINE_TEXT_JSON_OBJECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

class JsonObject {
 public:
  // kInvalidArgument where the text is no JSON object.
  static Result<JsonObject> Parse(std::string_view text);

  bool Has(const std::string& name) const;
  std::vector<std::string> names() const;

  // The value of a field. kInvalidArgument, which names the field, where there
  // is none or it is something else.
  Result<bool> Bool(const std::string& name) const;
  Result<int64_t> Int(const std::string& name) const;
  Result<uint64_t> Unsigned(const std::string& name) const;
  Result<double> Double(const std::string& name) const;  // of any number
  Result<std::string> String(const std::string& name) const;
  Result<std::vector<std::string>> Strings(const std::string& name) const;
  Result<std::vector<int64_t>> Ints(const std::string& name) const;
  Result<JsonObject> Object(const std::string& name) const;

 private:
  struct Fields;
  explicit JsonObject(std::shared_ptr<const Fields> fields)
      : fields_(std::move(fields)) {}

  std::shared_ptr<const Fields> fields_;
};

// Parses a JSON list of strings; kInvalidArgument if the text is none.
Result<std::vector<std::string>> ParseJsonStrings(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_JSON_OBJECT_H_
