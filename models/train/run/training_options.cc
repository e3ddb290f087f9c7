#include "models/train/run/training_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace sluice {

SaveEvery ParseSaveEvery(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string_view unit = end;
  const double seconds = unit == "s"   ? 1
                         : unit == "m" ? 60
                         : unit == "h" ? 3600
                                       : 0;
  const bool whole = unit.empty() && number == std::floor(number);
  if (text.empty() || end == text || !(number >= 0 && number <= 1e9) ||
      (seconds == 0 && !whole)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("wanted a number of steps or a time such as 10m "
                            "(s, m or h), got '{}'",
                            text));
  }
  if (whole) return {.steps = static_cast<int64_t>(number), .seconds = 0};
  return {.steps = 0, .seconds = number * seconds};
}

DeviceName OwnDevice(const TrainingOptions& options) {
  return ParseDeviceName(options.session.devices[0]).ValueOrThrow();
}

}  // namespace sluice
