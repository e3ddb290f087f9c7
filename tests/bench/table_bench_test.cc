// A table larger than what a worker may hold, over two parameter servers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine_memory.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/sanitizers.h"

namespace sluice::testing {
namespace {

const std::string kTableBench = std::string(SLUICE_BIN_DIR) + "/table_bench";

// The bench's training by so many workers on two servers.
Outcome OnTwoServers(int workers, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"-n",
                                    std::to_string(workers),
                                    "--ps",
                                    "2",
                                    kTableBench,
                                    "train",
                                    "--strategy",
                                    "ps",
                                    "--consistency",
                                    "async"};
  words.insert(words.end(), more.begin(), more.end());
  return RunProgram(std::string(SLUICE_BIN_DIR) + "/sluicerun", words);
}

// In MB, as the process of that name in the launcher's lines has said; below 0:
// it has not.
double PeakOf(const std::string& process, const std::string& err) {
  const std::string said = fmt::format("[{}] peak memory: ", process);
  const size_t at = err.find(said);
  if (at == std::string::npos) return -1;
  return std::strtod(err.c_str() + at + said.size(), nullptr);
}

// The last evaluation among the objects of --json; those of a job's rank 0 come
// behind its prefix.
nlohmann::json EvaluationOf(const std::string& out) {
  nlohmann::json found;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find('{');
    if (begin == std::string::npos) continue;
    nlohmann::json object = nlohmann::json::parse(line.substr(begin));
    if (object["event"] == "evaluation") found = std::move(object);
  }
  REQUIRE(found.is_object());
  return found;
}

// 2.56 GB with the optimizer's slot.
TEST_CASE("of 20 million rows on two servers workers hold less than 300 MB") {
  constexpr size_t kWanted = 6'000'000'000;
  const size_t available = ReadMachineMemory().available;
  if (kSanitized || available < kWanted) {
    MESSAGE("skipped: " << (kSanitized ? "a sanitizer's memory counts, too"
                                       : "less than 6 GB are available"));
    return;
  }
  const Outcome outcome =
      OnTwoServers(2, {"--rows", "20000000", "--steps", "20", "--json"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  for (const char* const worker : {"0", "1"}) {
    CAPTURE(worker);
    CHECK(PeakOf(worker, outcome.err) > 0);
    CHECK(PeakOf(worker, outcome.err) < 300);
  }
  // Each has half of it.
  for (const char* const server : {"ps 0", "ps 1"}) {
    CAPTURE(server);
    CHECK(PeakOf(server, outcome.err) > 1'000);
    CHECK(PeakOf(server, outcome.err) < 2'000);
  }
  CHECK(EvaluationOf(outcome.out)["step"] == 20);
}

TEST_CASE("a table on two servers trains to what it does in one process") {
  // Large enough to be cut, small enough to be trained by one.
  const std::vector<std::string> flags = {
      "--rows", "1000000", "--steps", "20", "--deterministic", "--json"};
  const Outcome served = OnTwoServers(1, flags);
  REQUIRE_MESSAGE(served.code == 0, served.err);
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome alone = RunProgram(kTableBench, words);
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  const nlohmann::json here = EvaluationOf(alone.out);
  const nlohmann::json there = EvaluationOf(served.out);
  CHECK(there["step"] == here["step"]);
  CHECK(there["examples"] == here["examples"]);
  // Slices of one row are added up in another order.
  CHECK(there["loss"].get<double>() ==
        doctest::Approx(here["loss"].get<double>()).epsilon(1e-5));
}

}  // namespace
}  // namespace sluice::testing
