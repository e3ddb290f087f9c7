// Jobs whose processes nobody's launcher starts: who they are is in their
// environment.
#ifndef SLUICE_TESTS_SUPPORT_CONFIG_JOBS_H_
#define SLUICE_TESTS_SUPPORT_CONFIG_JOBS_H_

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dist/net/socket.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

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

// The path of a file with a job's token.
inline std::string TokenFile(const TemporaryFolder& folder) {
  std::ofstream(folder / "token") << std::string(64, '7');
  chmod((folder / "token").c_str(), 0600);
  return folder / "token";
}

// A training's process with these variables.
inline std::unique_ptr<Process> TrainWithVariables(const Words& variables,
                                                   const Words& more) {
  Words words = variables;
  words.emplace_back(kMnist);
  words = Joined(words, OnMnist("train", {"--threads", "1"}));
  return std::make_unique<Process>("/usr/bin/env", Joined(words, more));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CONFIG_JOBS_H_
