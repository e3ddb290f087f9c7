#include "dist/collective/options.h"

#include <fmt/format.h>

#include "dist/collective/algorithms.h"

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

Result<Algorithm> ParseAlgorithm(std::string_view word) {
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kRing, Algorithm::kHalvingDoubling,
        Algorithm::kHierarchical}) {
    if (word == NameOf(algorithm)) return algorithm;
  }
  return InvalidArgument(
      fmt::format("all-reduce '{}' is none of auto, ring, "
                  "halving-doubling, hierarchical",
                  word));
}

}  // namespace sluice::dist
