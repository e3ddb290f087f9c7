#include "models/cli/flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "engine/parse_number.h"
#include "engine/status.h"
#include "models/cli/command_line.h"

namespace sluice {
namespace {

std::pair<std::string, double> ParseRateFactor(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals != std::string::npos && equals > 0) {
    const char* begin = text.c_str() + equals + 1;
    char* end = nullptr;
    const double factor = std::strtod(begin, &end);
    if (end != begin && *end == '\0' && factor >= 0 && std::isfinite(factor)) {
      return {text.substr(0, equals), factor};
    }
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("wanted PATTERN=FACTOR, such as fc/*=10, several with "
                  "commas between them, got '{}'",
                  text));
}

}  // namespace

std::pair<int64_t, int64_t> ParseSteps(const std::string& text) {
  long long first = 0, last = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "steps=%lld:%lld%n", &first, &last, &used) !=
          2 ||
      static_cast<size_t>(used) != text.size() || first < 1 || last < first) {
    throw Error(Code::kInvalidArgument,
                fmt::format("wanted steps=FIRST:LAST, such as steps=100:110, "
                            "got '{}'",
                            text));
  }
  return {first, last};
}

std::vector<std::pair<std::string, double>> ParseRateFactors(
    const std::string& text) {
  std::vector<std::pair<std::string, double>> factors;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    factors.push_back(ParseRateFactor(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return factors;
}

int ParseInputThreads(const std::string& text) {
  if (text == "auto") return kAutomatic;
  constexpr int kMost = 1024;
  const auto threads = ParseWhole<int>(text);
  if (threads && *threads >= 0 && *threads <= kMost) return *threads;
  throw Error(Code::kInvalidArgument,
              fmt::format("wanted a number from 0 to {} or auto, got '{}'",
                          kMost, text));
}

uint64_t ParseBytes(const std::string& text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  const std::string_view rest(read.ptr, end - read.ptr);
  const size_t unit = rest.empty() ? 0 : std::string_view("KMGT").find(rest);
  const unsigned shift =
      rest.empty() ? 0 : 10 * (static_cast<unsigned>(unit) + 1);
  if (read.ec != std::errc() || rest.size() > 1 ||
      unit == std::string_view::npos || number == 0 ||
      number > (uint64_t{1} << 50) >> shift) {
    throw Error(Code::kInvalidArgument,
                fmt::format("wanted bytes such as 500M, 20G or 1T, up to "
                            "1024T, got '{}'",
                            text));
  }
  return number << shift;
}

}  // namespace sluice
