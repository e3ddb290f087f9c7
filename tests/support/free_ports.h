// Ports for who has to be told of one before anybody listens there.
#ifndef SLUICE_TESTS_SUPPORT_FREE_PORTS_H_
#define SLUICE_TESTS_SUPPORT_FREE_PORTS_H_

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "dist/net/socket.h"

namespace sluice::testing {

// Of those that nobody listens at, so many different ones. Below those that the
// system gives to whoever wants any (from 32768), who might take them
// meanwhile.
inline std::vector<int> FreePorts(size_t count) {
  std::random_device random;
  std::vector<dist::Listener> listeners;
  std::vector<int> ports;
  while (ports.size() < count) {
    const int port = 20000 + static_cast<int>(random() % 12000);
    auto listener = dist::Listener::Open("127.0.0.1", port);
    if (!listener.ok()) continue;
    listeners.push_back(*std::move(listener));
    ports.push_back(port);
  }
  return ports;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_FREE_PORTS_H_
