// Jobs whose processes nobody's launcher starts: who they are is in their
// environment.
#ifndef SLUICE_TESTS_SUPPORT_CONFIG_JOBS_H_
#define SLUICE_TESTS_SUPPORT_CONFIG_JOBS_H_

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/support/free_ports.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

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
