// The mnist program from outside, on a folder of a few synthetic digits.
#ifndef SLUICE_TESTS_SUPPORT_MNIST_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_MNIST_PROGRAM_H_

#include <sys/types.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/support/idx_folder.h"
#include "tests/support/program.h"
#include "tests/support/text_of.h"

namespace sluice::testing {

inline constexpr const char* kMnist = SLUICE_BIN_DIR "/mnist";

inline Outcome RunMnist(const std::vector<std::string>& arguments) {
  return RunProgram(kMnist, arguments);
}

// Small enough to train in a moment: ten steps an epoch.
inline const IdxFolder& MnistData() {
  static const IdxFolder data(1000, 230);
  return data;
}

// The arguments of a command on these.
inline std::vector<std::string> OnMnist(const std::string& command,
                                        const std::vector<std::string>& more,
                                        const std::string& model = "mlp") {
  std::vector<std::string> arguments = {command, "--data-dir",
                                        MnistData().path(), "--model", model};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Training of a convolutional network with dropout, the same bits each time.
inline std::vector<std::string> OnNetwork(
    const std::string& log_dir, const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--log-dir",   log_dir, "--json",
                                  "--log-every", "1",     "--deterministic"};
  all.insert(all.end(), more.begin(), more.end());
  return OnMnist("train", all, "cnn");
}

// The rows of a table (predict --csv) whose first field is `file`, without it.
inline std::vector<std::string> CsvRowsOf(const std::string& file,
                                          const std::string& table) {
  std::vector<std::string> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(file + ",")) rows.push_back(line.substr(file.size()));
  }
  return rows;
}

// Whether it is the mnist program by now, and has a handler for the signal.
inline bool MnistHandles(pid_t process, int signal) {
  const std::string key = "SigCgt:";
  const std::string status =
      TextOf("/proc/" + std::to_string(process) + "/status");
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto caught = std::stoull(line.substr(key.size()), nullptr, 16);
    return status.starts_with("Name:\tmnist\n") &&
           ((caught >> (signal - 1)) & 1) != 0;
  }
  return false;
}

inline void CheckMnistError(const Outcome& outcome, int code,
                            const std::string& part) {
  CheckError(outcome, "mnist", code, part);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_MNIST_PROGRAM_H_
