// Checks of flags' values, as CLI11 has them. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_FLAG_CHECKS_H_
#define SLUICE_MODELS_CLI_FLAG_CHECKS_H_

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "engine/status.h"

namespace sluice {

// Runs a parser of ours as a CLI11 check: its Error becomes a usage error.
template <typename Parse>
CLI::Validator Parses(const char* type, Parse parse) {
  return {[parse](std::string& text) -> std::string {
            try {
              parse(text);
              return {};
            } catch (const Error& error) {
              return error.what();
            }
          },
          type};
}

// A number in [least, most].
inline CLI::Validator Between(double least, double most) {
  return Parses("NUMBER", [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("wanted a number from {} to {}, got '{}'", least,
                              most, text));
    }
  });
}

// Whole numbers up to 2^53, which a double tells apart.
inline constexpr double kLargest = 9007199254740992;

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_FLAG_CHECKS_H_
