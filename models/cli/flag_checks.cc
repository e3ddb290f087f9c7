#include "models/cli/flag_checks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "engine/status.h"
#include "engine/text/arguments.h"

namespace sluice {

FlagCheck Parses(const char* type,
                 std::function<void(const std::string&)> parse) {
  return {type, [parse = std::move(parse)](std::string& text) -> std::string {
            try {
              parse(text);
              return {};
            } catch (const Error& error) {
              return error.what();
            }
          }};
}

void CheckDecimal(const std::string& text) {
  const std::string wrong = WrongDecimal(text);
  if (!wrong.empty()) throw Error(Code::kInvalidArgument, wrong);
}

FlagCheck Between(double least, double most) {
  return Parses("NUMBER", [=](const std::string& text) {
    CheckDecimal(text);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("wanted a number from {} to {}, got '{}'", least,
                              most, text));
    }
  });
}

}  // namespace sluice
