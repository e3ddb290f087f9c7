// Checks of flags' values. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_FLAG_CHECKS_H_
#define SLUICE_MODELS_CLI_FLAG_CHECKS_H_

#include <concepts>
#include <functional>
#include <string>

namespace sluice {

// What CLI11 calls a Validator, and becomes one where it is asked for.
struct FlagCheck {
  std::string type;  // of values, as --help says it
  // What is wrong with a value; empty: nothing.
  std::function<std::string(std::string&)> wrong;

  template <typename Validator>
  requires std::constructible_from<
      Validator, std::function<std::string(std::string&)>, std::string>
  operator Validator() const {  // NOLINT: converts
    return Validator(wrong, type);
  }
};

// Runs a parser of ours: its Error becomes a usage error.
FlagCheck Parses(const char* type,
                 std::function<void(const std::string&)> parse);

// Throws Error for a number with a leading zero, which CLI11 takes for octal.
void CheckDecimal(const std::string& text);

// A number in [least, most], and CheckDecimal's.
FlagCheck Between(double least, double most);

// Whole numbers up to 2^53, which a double tells apart.
inline constexpr double kLargest = 9007199254740992;

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_FLAG_CHECKS_H_
