// What has come of a struck job (struck_job.h): what it said, and what it has
// trained.
#ifndef SLUICE_TESTS_APPS_SLUICERUN_STRUCK_RESULTS_H_
#define SLUICE_TESTS_APPS_SLUICERUN_STRUCK_RESULTS_H_

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/newest_tensors.h"

namespace sluice::testing {

inline int Number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What it said, but for its progress.
inline std::string Said(const Process& process) {
  std::istringstream lines(process.err());
  std::string said = "\n";
  for (std::string line; std::getline(lines, line);) {
    if (!Has(line, "] epoch ")) said += line + "\n";
  }
  return said;
}

inline bool Joining(const Strike& strike) {
  return strike.phase == Strike::Phase::kStart ||
         (strike.at == 0 && strike.phase != Strike::Phase::kEnd);
}

// Whether "group 'stage' of ranks 1, 3 of 4: rank 0 of 2 ..." is of that rank.
inline bool NamesInGroup(const std::string& line, int number) {
  constexpr std::string_view kMembers = " of ranks ";
  const size_t at = line.find(kMembers);
  if (at == std::string::npos) return false;
  std::istringstream text(line.substr(at + kMembers.size()));
  std::vector<int> members;
  char comma = ',';
  for (int member = 0; comma == ',' && text >> member; text >> comma) {
    members.push_back(member);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string name = fmt::format("rank {} of {}", i, members.size());
    if (members[i] == number && Has(line, name)) return true;
  }
  return false;
}

// Whether the line is of whoever was struck.
inline bool Names(const std::string& line, const Strike& strike, int size) {
  const auto has = [&line](const std::string& name) { return Has(line, name); };
  const int n = strike.number;
  if (strike.server) {
    return has(fmt::format("/job:ps/task:{}", n)) ||
           has(fmt::format("parameter server {}", n));
  }
  // Before they have met, those that are missing are a list.
  if (Joining(strike)) return has("rank") && has(std::to_string(n));
  return has(fmt::format("rank {} of {}", n, size)) ||
         has(fmt::format("/job:worker/task:{}", n)) || NamesInGroup(line, n);
}

// What ranks that were not struck say last is of those that were, or of others
// that the launcher had told to end before. How many said something.
inline int CheckNamed(const std::vector<Strike>& struck, int size,
                      const std::string& said) {
  std::istringstream lines(said);
  int named = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find("] struck: ");
    if (line[0] != '[' || end == std::string::npos) continue;
    const std::string who = line.substr(1, end - 1);
    const bool own =
        std::any_of(struck.begin(), struck.end(), [&who](const Strike& strike) {
          return !strike.server && who == std::to_string(strike.number);
        });
    if (own || Has(line, "after this process was told to end")) continue;
    CAPTURE(line);
    CHECK(std::any_of(struck.begin(), struck.end(), [&](const Strike& strike) {
      return Names(line, strike, size);
    }));
    ++named;
  }
  return named;
}

inline std::string KeyOf(const Words& words) {
  std::string key;
  for (const std::string& word : words) key += word + " ";
  return key;
}

inline const TensorsByName& Undisturbed(const StruckJob& job) {
  static std::map<std::string, TensorsByName> known;
  TensorsByName& tensors = known[KeyOf(job.Undisturbed("log"))];
  if (tensors.empty()) {
    const TemporaryFolder folder;
    const Outcome outcome =
        RunProgram(kLauncher, job.Undisturbed(folder / "log"));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    tensors = NewestTensors(folder / "log");
  }
  return tensors;
}

// Each example as often as there are epochs, whoever it was that read it; with
// backup workers those that were admitted stand for the others of a step.
inline void CheckWhole(const StruckJob& job, const TensorsByName& trained) {
  // They are rounded up to whole rounds of workers with steps of their own.
  if (job.apart()) REQUIRE(job.steps() % job.size == 0);
  CHECK(trained.at("global_step").At(0) == job.steps());
  const Tensor& seen = trained.at("seen/table");
  REQUIRE(seen.elements() == 64);
  double all = 0;
  for (int64_t i = 0; i < seen.elements(); ++i) {
    CAPTURE(i);
    all -= seen.At(i);
    if (job.backups == 0) CHECK(std::abs(seen.At(i) + job.epochs) < 1e-3);
  }
  CHECK(std::abs(all - 64 * job.epochs) < 0.05);
  if (job.has_bits()) CheckSameTensors(trained, Undisturbed(job));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_APPS_SLUICERUN_STRUCK_RESULTS_H_
