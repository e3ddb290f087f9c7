// Programs and shell scripts as the ranks of a launcher's job.
#ifndef SLUICE_TESTS_SUPPORT_LAUNCHED_H_
#define SLUICE_TESTS_SUPPORT_LAUNCHED_H_

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.h"
#include "tests/support/await.h"
#include "tests/support/program.h"

namespace sluice::testing {

inline const std::string kLauncher = std::string(SLUICE_BIN_DIR) + "/sluicerun";

using Words = std::vector<std::string>;

inline Words Joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The launcher's arguments for so many processes of a program.
inline Words Launched(int size, const std::string& program,
                      const Words& arguments) {
  Words words = {"-n", std::to_string(size), program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// The process of a rank of a launcher's job; 0: there is none.
inline pid_t Rank(pid_t launcher, int rank) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", launcher));
  pid_t child = 0;
  while (file >> child) {
    const std::string environment =
        TextOf(fmt::format("/proc/{}/environ", child));
    if (environment.find(fmt::format("SLUICE_RANK={}", rank) + '\0') !=
        std::string::npos) {
      return child;
    }
  }
  return 0;
}

// Sends a signal to the process of a rank of a launcher's job. Where there is
// none the case has failed, and ends: process 0 would be all of this group.
inline void KillRank(pid_t launcher, int rank, int signal) {
  const pid_t pid = Rank(launcher, rank);
  REQUIRE(pid > 0);
  kill(pid, signal);
}

// As the system has it, 'R', 'S', 'T' (it stands still), 'Z' and so on; 0:
// there is no such process. Behind its name, which may have brackets, too.
inline char StateOf(pid_t pid) {
  const std::string stat = TextOf(fmt::format("/proc/{}/stat", pid));
  const size_t end = stat.rfind(") ");
  return end == std::string::npos ? '\0' : stat[end + 2];
}
inline bool StandsStill(pid_t pid) {
  return StateOf(pid) == 'T';
}
// A process whose parent has died may stay a zombie where nobody reaps.
inline bool Runs(pid_t pid) {
  const char state = StateOf(pid);
  return state != '\0' && state != 'Z';
}

// "-n <size> <options> /bin/sh -c <script> sh <arguments>"
inline Words Job(int size, const std::string& script, Words options = {},
                 const Words& arguments = {}) {
  Words words = {"-n", std::to_string(size)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"/bin/sh", "-c", script, "sh"});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

inline Outcome RunJob(int size, const std::string& script, Words options = {},
                      const Words& arguments = {}) {
  return RunProgram(kLauncher,
                    Job(size, script, std::move(options), arguments));
}

// The lines of each rank, without their prefixes.
inline std::map<int, std::string> ByRank(const std::string& out) {
  std::map<int, std::string> ranks;
  for (size_t begin = 0; begin < out.size();) {
    const size_t end = out.find('\n', begin);
    REQUIRE(end != std::string::npos);  // the last line is ended
    const size_t bracket = out.find("] ", begin);
    REQUIRE(out[begin] == '[');
    REQUIRE(bracket < end);
    const int rank = std::stoi(out.substr(begin + 1, bracket - begin - 1));
    REQUIRE(std::to_string(rank).size() == bracket - begin - 1);
    ranks[rank] += out.substr(bracket + 2, end + 1 - bracket - 2);
    begin = end + 1;
  }
  return ranks;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_LAUNCHED_H_
