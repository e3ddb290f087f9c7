#include "dist/collective/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dist/net/frame.h"
#include "dist/net/little_endian.h"

namespace sluice::dist {
namespace {

constexpr uint32_t kLastPort = 65535;
constexpr uint32_t kLastHost = 65535;  // there are fewer

}  // namespace

std::vector<std::byte> Encoded(const std::vector<Place>& places) {
  std::vector<std::byte> bytes(places.size() * kPlaceBytes);
  std::byte* at = bytes.data();
  for (const Place& place : places) {
    PutText(place.address, kAddressBytes, &at);
    Put(static_cast<uint32_t>(place.port), &at);
    Put(static_cast<uint32_t>(place.host), &at);
  }
  return bytes;
}

Result<std::vector<Place>> PlacesOf(std::span<const std::byte> bytes) {
  if (bytes.size() % kPlaceBytes != 0) {
    return DataLoss(fmt::format("{} bytes of places, of {} each", bytes.size(),
                                kPlaceBytes));
  }
  std::vector<Place> places(bytes.size() / kPlaceBytes);
  const std::byte* at = bytes.data();
  for (Place& place : places) {
    place.address = TakeText(kAddressBytes, &at);
    const auto port = Take<uint32_t>(&at), host = Take<uint32_t>(&at);
    if (port > kLastPort || host > kLastHost) {
      return DataLoss(fmt::format("a place at port {} of host {}", port, host));
    }
    place.port = static_cast<int>(port);
    place.host = static_cast<int>(host);
  }
  return places;
}

Status SendPlaces(const std::vector<Place>& places, uint32_t epoch, Socket& to,
                  Deadline deadline) {
  const std::vector<std::byte> payload = Encoded(places);
  Frame frame;
  frame.kind = FrameKind::kPeers;
  frame.epoch = epoch;
  frame.count = places.size();
  frame.bytes = payload.size();
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  const std::array<Bytes, 2> pieces = {Bytes(header), Bytes(payload)};
  return to.Send(pieces, deadline);
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
