#include "dist/collective/places.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

constexpr size_t kAddressBytes = 64;

}  // namespace

std::vector<std::byte> Encoded(const std::vector<Place>& places) {
  std::vector<std::byte> bytes(places.size() * kPlaceBytes);
  std::byte* at = bytes.data();
  for (const Place& place : places) {
    std::memcpy(at, place.address.data(),
                std::min(place.address.size(), kAddressBytes));
    at += kAddressBytes;
    Put(static_cast<uint32_t>(place.port), &at);
    Put(static_cast<uint32_t>(place.host), &at);
  }
  return bytes;
}

std::vector<Place> PlacesOf(std::span<const std::byte> bytes) {
  std::vector<Place> places(bytes.size() / kPlaceBytes);
  const std::byte* at = bytes.data();
  for (Place& place : places) {
    place.address.assign(reinterpret_cast<const char*>(at), kAddressBytes);
    place.address.resize(std::min(place.address.find('\0'), kAddressBytes));
    at += kAddressBytes;
    place.port = static_cast<int>(Take<uint32_t>(&at) & 0xffff);
    place.host = static_cast<int>(Take<uint32_t>(&at) & 0xffff);
  }
  return places;
}

int Hosts::NumberOf(const std::string& node, const std::string& address,
                    const std::string& reached) {
  std::string name = Named(node);
  if (node.empty() && address != reached) name = address;
  auto known = std::find(names_.begin(), names_.end(), name);
  if (known == names_.end()) known = names_.insert(known, name);
  return static_cast<int>(known - names_.begin());
}

}  // namespace sluice::dist
