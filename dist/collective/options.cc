#include "dist/collective/options.h"

#include <fmt/format.h>

namespace sluice::dist {

Result<Transport> ParseTransport(std::string_view word) {
  if (word == "auto") return Transport::kAuto;
  if (word == "tcp") return Transport::kTcp;
  if (word == "shared") return Transport::kShared;
  return InvalidArgument(
      fmt::format("transport '{}' is none of auto, tcp, shared", word));
}

Result<Overlap> ParseOverlap(std::string_view word) {
  if (word == "auto") return Overlap::kAuto;
  if (word == "on") return Overlap::kOn;
  if (word == "off") return Overlap::kOff;
  return InvalidArgument(
      fmt::format("overlap '{}' is none of auto, on, off", word));
}

}  // namespace sluice::dist
