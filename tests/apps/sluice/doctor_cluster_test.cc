// sluice doctor --cluster.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dist/net/tls.h"
#include "tests/places.h"
#include "tests/support/config_jobs.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/sshd.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::kLauncher;
using testing::Outcome;
using testing::Process;
using testing::RunJob;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::Words;

const std::string kDoctor = SLUICE_BIN_DIR "/sluice doctor --cluster";

TEST_CASE("the doctor of a cluster finds every rank, and how fast they are") {
  for (const int size : {2, 3, 4}) {
    const Outcome outcome = RunJob(size, kDoctor + " --json");
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    int ranks = 0, rows = 0;
    std::map<std::vector<int>, int> pairs;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      REQUIRE(line.starts_with("[0] "));
      const json object = json::parse(line.substr(4));
      if (object.contains("rank")) {
        CHECK(object["rank"] == ranks++);
        CHECK(object["cores"].get<int>() >= 1);
        CHECK(object["neighbours_by_memory"] == 2);
      } else if (object.contains("bytes")) {
        ++rows;
        const double seconds = object["seconds"];
        CHECK(seconds > 0);
        CHECK(object["bytes_per_second"].get<double>() ==
              doctest::Approx(object["bytes"].get<double>() * 2 * (size - 1) /
                              size / seconds));
      } else if (object.contains("pair")) {
        ++pairs[object["pair"]];
        CHECK(object["one_host"] == true);
        for (const char* figure : {"latency_seconds", "bytes_per_second_there",
                                   "bytes_per_second_back"}) {
          CHECK(object[figure].get<double>() > 0);
        }
      } else {
        CHECK(object["warnings"].empty());
        CHECK(object["slow_pairs"].is_array());
      }
    }
    CHECK(ranks == size);
    CHECK(rows == 3);
    std::map<std::vector<int>, int> all;
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) all[{a, b}] = 1;
    }
    CHECK(pairs == all);
  }
  const Outcome text = RunJob(2, kDoctor);
  CHECK(text.code == 0);
  CHECK(Contains(text.out, "[0] all-reduce of 64 MiB "));
  CHECK(Contains(text.out, "[0]     ranks   one way, us there, GB/s"));
  CHECK(Contains(text.out, "[0]    0    1 "));
}

// As ranks and parameter servers of one job.
Outcome RunServed(int size, int servers, const std::string& script,
                  Words options = {}) {
  options.insert(options.end(), {"--ps", std::to_string(servers)});
  return RunJob(size, script, options);
}

TEST_CASE("the doctor of a cluster finds each server from every rank") {
  for (const auto& [size, servers] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(3, 2)}) {
    CAPTURE(size);
    const Outcome outcome =
        RunServed(size, servers, "exec " + kDoctor + " --json");
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    int ranks = 0, found = 0, rows = 0;
    std::string version;
    std::map<std::string, int> pairs;  // with servers
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      REQUIRE(line.starts_with("[0] "));
      const json object = json::parse(line.substr(4));
      if (object.contains("rank")) {
        ++ranks;
        version = object["version"];
      } else if (object.contains("server")) {
        CHECK(object["server"] == found++);
        CHECK(object["version"] == version);
        CHECK(object["cores"].get<int>() >= 1);
        CHECK(object["available_bytes"].get<double>() > 0);
        CHECK(std::abs(object["clock_ahead_seconds"].get<int>()) <= 1);
        CHECK(object["certified"] == false);
      } else if (object.contains("bytes")) {
        ++rows;
      } else if (object.contains("pair") && object["pair"][1].is_string()) {
        ++pairs[object["pair"].dump()];
        CHECK(object["one_host"] == true);
        for (const char* figure : {"latency_seconds", "bytes_per_second_there",
                                   "bytes_per_second_back"}) {
          CHECK(object[figure].get<double>() > 0);
        }
      }
    }
    CHECK(ranks == size);
    CHECK(found == servers);
    CHECK(rows == (size == 1 ? 0 : 3));
    std::map<std::string, int> all;
    for (int rank = 0; rank < size; ++rank) {
      for (int server = 0; server < servers; ++server) {
        all[fmt::format(R"([{},"ps {}"])", rank, server)] = 1;
      }
    }
    CHECK(pairs == all);
  }
  const Outcome text = RunServed(2, 1, "exec " + kDoctor);
  CHECK(text.code == 0);
  CHECK(Contains(text.out, "[0] ps 0      "));
  CHECK(Contains(text.out, "[0]    0    1 "));
  CHECK(Contains(text.out, "[0]    1 ps 0 "));
}

TEST_CASE("a server that ranks do not reach is an error that says of which") {
  // It listens, and says nothing.
  const Outcome outcome = RunServed(
      2, 1, "[ -n \"$SLUICE_SERVER\" ] && exec sleep 300; exec " + kDoctor);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err,
                 "not all ranks reach all parameter servers: rank 0: "
                 "/job:ps/task:0: "));
  CHECK(Contains(outcome.err, "; rank 1: /job:ps/task:0: "));
}

TEST_CASE("servers that no launcher ends do so when they have been seen") {
  const TemporaryFolder folder;
  const std::vector<int> ports = testing::FreePorts(3);
  const std::string cluster =
      fmt::format(R"({{"worker": ["127.0.0.1:{}", "127.0.0.1:{}"], )"
                  R"("ps": ["127.0.0.1:{}"]}})",
                  ports[0], ports[1], ports[2]);
  const std::string token = "SLUICE_TOKEN_FILE=" + testing::TokenFile(folder);
  std::vector<std::unique_ptr<Process>> all;
  for (const auto& [type, index] :
       {std::pair("worker", 0), std::pair("worker", 1), std::pair("ps", 0)}) {
    all.push_back(std::make_unique<Process>(
        "/usr/bin/env",
        Words{token,
              fmt::format(R"(SLUICE_CONFIG={{"cluster": {}, "task": )"
                          R"({{"type": "{}", "index": {}}}}})",
                          cluster, type, index),
              SLUICE_BIN_DIR "/sluice", "doctor", "--cluster"}));
  }
  for (const auto& process : all) {
    const int code = process->Wait();
    CAPTURE(process->err());
    CHECK(code == 0);
  }
  CHECK(Contains(all[0]->out(), "\n   1 ps 0 "));
  CHECK(all[1]->out() == "");
  CHECK(all[2]->out() == "");
}

TEST_CASE("servers on other hosts show their certificates") {
  const auto sshd = testing::Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  const Outcome outcome = RunProgram(
      kLauncher,
      testing::Joined(sshd->Options(),
                      {"-H", "127.0.0.1,127.0.0.2", "--ps", "2",
                       SLUICE_BIN_DIR "/sluice", "doctor", "--cluster"}));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  for (const char* part :
       {", certificate of ps 0 of job ", ", certificate of ps 1 of job ",
        "[0]    0    1 ", "[0]    0 ps 1 ", "[0]    1 ps 0 "}) {
    CHECK(Contains(outcome.out, part));
  }
}

TEST_CASE("ranks that would train other bits are warned of") {
  const Outcome outcome = RunJob(
      2, "[ $SLUICE_RANK = 1 ] && export SLUICE_ISA=baseline; exec " + kDoctor);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  if (Contains(outcome.out, "cores with baseline, ") &&
      outcome.out.find("with avx") != std::string::npos) {
    CHECK(Contains(outcome.out, "warning: different instruction sets"));
  }
}

TEST_CASE("the doctor says whose certificates there are, and until when") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const auto job = [&](const Words& options, const std::string& arguments) {
    const Outcome outcome = RunJob(2, kDoctor + arguments, options);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return outcome.out;
  };
  // The launcher's own are new.
  std::string out = job({"--tls"}, "");
  CHECK(Contains(out, ", certificate of worker 1 of job "));
  CHECK_FALSE(Contains(out, "expires in"));
  const auto make = [&](const std::string& name, const std::string& days) {
    REQUIRE(RunProgram(kLauncher, {"-n", "2", "--make-certificates",
                                   folder / name, "--valid-days", days})
                .code == 0);
    return Words{"--certificates", folder / name};
  };
  out = job(make("short", "3"), "");
  CHECK(Contains(out, "warning: the certificate of rank 0 expires in 3 days"));
  CHECK(Contains(out, "warning: the certificate of rank 1 expires in 3 days"));
  REQUIRE(RunProgram(kLauncher, {"-n", "2", "--ps", "1", "--make-certificates",
                                 folder / "served", "--valid-days", "3"})
              .code == 0);
  const Outcome served =
      RunServed(2, 1, "exec " + kDoctor, {"--certificates", folder / "served"});
  CAPTURE(served.err);
  CHECK(served.code == 0);
  CHECK(Contains(served.out,
                 "warning: the certificate of ps 0 expires in 3 days"));
  CHECK_FALSE(Contains(job(make("long", "8"), ""), "expires in"));

  out = job(make("told", "30"), " --json");
  const json facts = json::parse(out.substr(4, out.find('\n') - 4));
  CHECK(facts["certificate"].get<std::string>().ends_with("/worker/0"));
  const auto left =
      facts["certificate_expires"].get<int64_t>() - std::time(nullptr);
  CHECK(std::abs(left - 30 * 24 * 3600) < 120);
}

TEST_CASE("one process is no cluster") {
  testing::CheckError(
      testing::RunProgram(SLUICE_BIN_DIR "/sluice", {"doctor", "--cluster"}),
      "sluice", 1, "--cluster looks at several processes");
}

}  // namespace
}  // namespace sluice
