// Where the ranks of a job are, as rank 0 tells them all.
#ifndef SLUICE_DIST_COLLECTIVE_PLACES_H_
#define SLUICE_DIST_COLLECTIVE_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// Where a rank listens (rank 0 where the launcher said), and the number of its
// host, from 0.
struct Place {
  std::string address;
  int port = 0;
  int host = 0;
};

// Bytes of an address in any frame: a text padded with zeros.
inline constexpr size_t kAddressBytes = 64;
// Bytes of a place in a frame of peers: the address, and 4 bytes each of port
// and host, little-endian.
inline constexpr size_t kPlaceBytes = kAddressBytes + 8;
std::vector<std::byte> Encoded(const std::vector<Place>& places);
// Decodes any bytes: kDataLoss where they are not places, or a port or a host's
// number is out of range.
Result<std::vector<Place>> PlacesOf(std::span<const std::byte> bytes);
// Sends a whole frame (kPeers) of places.
Status SendPlaces(const std::vector<Place>& places, uint32_t epoch, Socket& to,
                  Deadline deadline);

// Numbers hosts as rank 0, whose own is 0, hears of ranks there: by the name
// of their node, where they have one, else by their address.
class Hosts {
 public:
  explicit Hosts(const std::string& own_node) : names_{Named(own_node)} {}

  // The number of a rank's host. `reached`: rank 0's address, as this rank has
  // reached it. A rank that has come from that address is on rank 0's host.
  int NumberOf(const std::string& node, const std::string& address,
               const std::string& reached);

 private:
  static std::string Named(const std::string& node) {
    return node.empty() ? "" : "node " + node;
  }

  std::vector<std::string> names_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_PLACES_H_
