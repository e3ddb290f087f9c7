// What a rank says to another with which it would share memory
// (dist/collective/sharing.h).
#ifndef SLUICE_DIST_COLLECTIVE_OFFER_H_
#define SLUICE_DIST_COLLECTIVE_OFFER_H_

#include <string>
#include <string_view>

#include "engine/status.h"

namespace sluice::dist {

// "system name secret", three words.
struct Offer {
  std::string system, name, secret;

  std::string Text() const { return system + " " + name + " " + secret; }
  // kDataLoss where the text is not an offer.
  static Result<Offer> Parse(std::string_view text);
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_OFFER_H_
