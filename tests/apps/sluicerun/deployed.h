// Jobs that something else starts: what the tests of these share.
#ifndef SLUICE_TESTS_APPS_SLUICERUN_DEPLOYED_H_
#define SLUICE_TESTS_APPS_SLUICERUN_DEPLOYED_H_

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

inline Words Training(const std::string& log_dir) {
  return Joined({kMnist}, OnMnist("train", {"--epochs", "1", "--threads", "1",
                                            "--log-dir", log_dir}));
}

// By this machine's launcher, two processes and what else it is told.
inline TensorsByName TrainedByLauncher(const Words& options = {},
                                       const Words& more = {}) {
  const TemporaryFolder folder;
  const Outcome outcome = RunProgram(
      kLauncher,
      Joined(Joined(Joined({"-n", "2"}, options), Training(folder / "log")),
             more));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return NewestTensors(folder / "log");
}

inline void Write(const std::string& path, const std::string& text,
                  mode_t mode) {
  std::ofstream(path) << text;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_APPS_SLUICERUN_DEPLOYED_H_
