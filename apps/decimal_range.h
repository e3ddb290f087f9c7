// Checks of numbers that the tool and the launcher are given.
#ifndef SLUICE_APPS_DECIMAL_RANGE_H_
#define SLUICE_APPS_DECIMAL_RANGE_H_

#include <CLI/CLI.hpp>
#include <string>

#include "engine/text/arguments.h"

namespace sluice {

// CLI::Range, but that a leading zero is refused, which CLI11 takes for octal.
template <typename T>
CLI::Validator DecimalRange(T least, T most) {
  const CLI::Range range(least, most);
  return CLI::Validator(
      [range](std::string& text) -> std::string {
        std::string wrong = WrongDecimal(text);
        return wrong.empty() ? range(text) : wrong;
      },
      range.get_description());
}

}  // namespace sluice

#endif  // SLUICE_APPS_DECIMAL_RANGE_H_
