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

}  // namespace sluice::dist
