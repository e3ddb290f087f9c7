// What processes say when they meet, by the first byte: any bytes are one, or
// an error; what was read is written to bytes that read the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dist/cluster/introduction.h"
#include "dist/collective/offer.h"
#include "dist/collective/places.h"
#include "graph/passes/device_description.h"

namespace {

// Of a type with Parse and ToText.
template <typename T>
void Read(std::string_view text) {
  const auto read = T::Parse(text);
  if (!read.ok()) return;
  const std::string said = read->ToText();
  SLUICE_CHECK(T::Parse(said)->ToText() == said);
}

void ReadOffer(std::string_view text) {
  const auto offer = sluice::dist::Offer::Parse(text);
  if (offer.ok()) SLUICE_CHECK(offer->Text() == text);
}

void ReadPlaces(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  const auto places = sluice::dist::PlacesOf(bytes);
  if (!places.ok()) return;
  // But for what is behind the end of an address.
  const auto said = Encoded(*places);
  SLUICE_CHECK(
      std::ranges::equal(Encoded(*sluice::dist::PlacesOf(said)), said));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  switch (data[0] % 5) {
    case 0:
      Read<sluice::dist::Introduction>(text);
      break;
    case 1:
      Read<sluice::dist::Peer>(text);
      break;
    case 2:
      Read<sluice::DeviceDescription>(text);
      break;
    case 3:
      ReadOffer(text);
      break;
    default:
      ReadPlaces(text);
  }
  return 0;
}
