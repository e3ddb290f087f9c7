#include "dist/collective/offer.h"

namespace sluice::dist {

Result<Offer> Offer::Parse(std::string_view text) {
  const size_t first = text.find(' ');
  const size_t last = text.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return DataLoss("an offer of memory that is none");
  }
  const Offer offer = {std::string(text.substr(0, first)),
                       std::string(text.substr(first + 1, last - first - 1)),
                       std::string(text.substr(last + 1))};
  const bool words = !offer.system.empty() && !offer.name.empty() &&
                     !offer.secret.empty() &&
                     offer.name.find(' ') == std::string::npos;
  if (!words) return DataLoss("an offer of memory that is none");
  return offer;
}

}  // namespace sluice::dist
