// Jobs that something else starts: certificates for them, and what sluicerun
// makes for Slurm, with a stand-in that does as its documentation says.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/deployed.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/net_hosts.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/program.h"
#include "tests/support/required.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CheckError;
using testing::CheckSameTensors;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Outcome;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::TrainedByLauncher;
using testing::Training;
using testing::Words;
using testing::Write;

TEST_CASE("certificates are a new folder's, and each key its owner's") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const Words make = {"-n",           "2", "--ps", "1", "--make-certificates",
                      folder / "made"};
  CHECK(RunProgram(kLauncher, make).code == 0);
  for (const char* name :
       {"ca.pem", "worker-0.pem", "worker-1.pem", "ps-0.pem"}) {
    const Outcome verified = RunProgram(
        "/usr/bin/openssl",
        {"verify", "-CAfile", folder / "made/ca.pem", folder / "made/" + name});
    CHECK_MESSAGE(verified.code == 0, verified.err);
  }
  for (const char* name : {"worker-0.key", "worker-1.key", "ps-0.key"}) {
    CHECK(fs::status(folder / "made/" + name).permissions() ==
          (fs::perms::owner_read | fs::perms::owner_write));
  }
  CHECK(fs::status(folder / "made").permissions() == fs::perms::owner_all);
  CheckError(RunProgram(kLauncher, make), "sluicerun", 1,
             "is not an empty folder");
}

// Slurm's: as many tasks as it was asked for, on each node so many, behind the
// words that lead there; the first that fails ends them.
constexpr char kSrun[] = R"(#!/bin/bash
ends=no tasks=$SLURM_STEP_NUM_TASKS
while [[ $1 == --* ]]; do
  case $1 in
    --kill-on-bad-exit=1) ends=yes ;;
    --cpus-per-task=3 | --gpu-bind=none) ;;
    --ntasks=*) tasks=${1#*=} ;;
    *) exit 99 ;;
  esac
  shift
done
[[ $ends == yes && $tasks == "$SLURM_STEP_NUM_TASKS" ]] || exit 99
export SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID
[[ ! -e $STARTS ]] || SLURM_STEP_ID=$(wc -l <"$STARTS")
echo run >>"$STARTS"
for count in $COUNTS; do
  inside=INSIDE_$SLURM_NODEID
  for ((SLURM_LOCALID = 0; SLURM_LOCALID < count; ++SLURM_LOCALID)); do
    ${!inside} "$@" &
    pids+=($!)
    SLURM_PROCID=$((SLURM_PROCID + 1))
  done
  SLURM_NODEID=$((SLURM_NODEID + 1))
done
first=0
for _ in "${pids[@]}"; do
  wait -n
  code=$?
  ((code != 0 && first == 0)) || continue
  first=$code
  kill "${pids[@]}"
done
exit $first
)";

constexpr char kScontrol[] = R"(#!/bin/bash
[[ "$*" == 'show hostnames n[1-9]' ]] || exit 99
printf '%s\n' $HOSTS
)";

// What Slurm has given a job: how many tasks each node has.
struct Allocation {
  std::vector<int> counts = {2};
  std::string as_slurm_says = "2";
  Words hosts = {"127.0.0.1"};
  std::vector<Words> inside = {};  // a node's words; none: all are this host
};

// Of a script of the launcher's; the stand-in's environment is a node's.
Outcome Sbatch(const TemporaryFolder& folder, const std::string& script,
               const Allocation& given = {}) {
  Write(folder / "srun", kSrun, 0700);
  Write(folder / "scontrol", kScontrol, 0700);
  Write(folder / "script", script, 0700);
  std::string inside;
  for (size_t node = 0; node < given.inside.size(); ++node) {
    inside += fmt::format("INSIDE_{}='{}' ", node,
                          fmt::join(given.inside[node], " "));
  }
  return RunProgram(
      "/bin/sh",
      {"-c", fmt::format(
                 "cd {0} && env PATH={0}:$PATH STARTS={0}/starts COUNTS='{1}' "
                 "HOSTS='{2}' {3} SLURM_JOB_ID={4} SLURM_STEP_NUM_TASKS={5} "
                 "SLURM_STEP_TASKS_PER_NODE='{6}' "
                 "SLURM_STEP_NODELIST='n[1-9]' "
                 "SLUICE_COORDINATOR=127.0.0.1:{7} ./script",
                 folder.path(), fmt::join(given.counts, " "),
                 fmt::join(given.hosts, " "), inside, getpid(),
                 std::accumulate(given.counts.begin(), given.counts.end(), 0),
                 given.as_slurm_says, 20000 + getpid() % 10000)});
}

// By certificates, or by a token.
TEST_CASE("a script for Slurm trains what the launcher's job does") {
  for (const Words& security : {Words(), Words{"--allow-plaintext"}}) {
    if (security.empty() && !dist::HasTls()) continue;
    CAPTURE(security.size());
    const TemporaryFolder folder;
    const Outcome script = RunProgram(
        kLauncher, Joined(Joined(security, {"-n", "2", "--emit", "slurm",
                                            "--job-name", "m-1"}),
                          Training(folder / "log")));
    REQUIRE(script.code == 0);
    CHECK(Contains(script.out, "#SBATCH --ntasks=2\n"));
    const Outcome ran = Sbatch(folder, script.out);
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
    CheckSameTensors(NewestTensors(folder / "log"), TrainedByLauncher());
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      CHECK(!entry.path().filename().string().starts_with(".sluice"));
    }
  }
}

TEST_CASE("one process of Slurm's has nobody to know") {
  const Outcome script = RunProgram(
      kLauncher, {"-n", "1", "--allow-plaintext", "--emit", "slurm", "true"});
  REQUIRE(script.code == 0);
  CHECK(Contains(script.out, "export SLUICE_ALLOW_PLAINTEXT=1\n"));
  CHECK(script.out.find("mktemp") == std::string::npos);
}

// Memory by the CPU, rounded up: 8 GiB are 3 times 2731 MiB.
TEST_CASE("a script for Slurm asks for what each process is to have") {
  const TemporaryFolder folder;
  const Outcome script =
      RunProgram(kLauncher, {"-n", "2", "--allow-plaintext", "--emit", "slurm",
                             "--cpus", "3", "--memory", "8", "--gpus", "1",
                             "/bin/sh", "-c", "exit 0"});
  REQUIRE(script.code == 0);
  CHECK(Contains(script.out,
                 "#SBATCH --cpus-per-task=3\n#SBATCH --mem-per-cpu=2731M\n"
                 "#SBATCH --gpus-per-task=1\n"));
  // Each sees those of its node, of which --device /gpu takes its own.
  CHECK(Contains(script.out, " --cpus-per-task=3 --gpu-bind=none "));
  // Slurm reads them up to the first command.
  CHECK(script.out.find("#SBATCH") < script.out.find("set -eu"));
  CHECK(script.out.rfind("#SBATCH") < script.out.find("set -eu"));
  CHECK(Sbatch(folder, script.out).code == 0);
}

TEST_CASE("a script for Slurm starts a job again that has failed") {
  for (const auto& [code, starts] : {std::pair(3, 3), std::pair(2, 1)}) {
    const TemporaryFolder folder;
    const Outcome script =
        RunProgram(kLauncher, {"-n", "2", "--allow-plaintext", "--max-restarts",
                               "2", "--emit", "slurm", "/bin/sh", "-c",
                               fmt::format("exit {}", code)});
    REQUIRE(script.code == 0);
    CHECK(Sbatch(folder, script.out).code == code);
    CHECK(testing::Lines(TextOf(folder / "starts")) == starts);
  }
}

// Two nodes where there may be such, else one; by certificates or a token.
TEST_CASE("a script for Slurm trains with parameter servers") {
  const testing::NetHosts hosts(233, 2);
  const Allocation one = {{4}, "4"};
  std::vector<std::pair<Allocation, Words>> jobs = {
      {one, {"--allow-plaintext"}}};
  if (dist::HasTls()) jobs.push_back({one, {}});
  if (hosts.made()) {
    const Allocation two = {{2, 2},
                            "2(x2)",
                            {hosts.AddressOf(0), hosts.AddressOf(1)},
                            {hosts.Inside(0), hosts.Inside(1)}};
    jobs.push_back({two, {"--allow-plaintext"}});
    if (dist::HasTls()) jobs.push_back({two, {}});
  } else {
    testing::SkipForHosts("no network name spaces to be made");
  }
  const Words servers = {"--ps", "2"}, strategy = {"--strategy", "ps"};
  const testing::TensorsByName wanted = TrainedByLauncher(servers, strategy);
  for (const auto& [allocation, security] : jobs) {
    CAPTURE(allocation.as_slurm_says);
    CAPTURE(security.size());
    const TemporaryFolder folder;
    const Outcome script = RunProgram(
        kLauncher, Joined(Joined(Joined(Joined(servers, security),
                                        {"-n", "2", "--emit", "slurm"}),
                                 Training(folder / "log")),
                          strategy));
    CAPTURE(script.err);
    REQUIRE(script.code == 0);
    CHECK(Contains(script.out, "#SBATCH --ntasks=4\n"));
    const Outcome ran = Sbatch(folder, script.out, allocation);
    CAPTURE(ran.err);
    CHECK(ran.code == 0);
    CHECK(testing::Lines(TextOf(folder / "starts")) == 1);
    CheckSameTensors(NewestTensors(folder / "log"), wanted);
  }
}

// Each task notes who it was told to be, and where it is.
TEST_CASE("Slurm's tasks are one cluster, with servers dealt to its nodes") {
  struct Case {
    Allocation given;
    int servers;
    std::string worker_hosts, server_hosts;  // of the cluster, in order
  };
  for (const auto& [given, servers, worker_hosts, server_hosts] :
       std::vector<Case>{
           {{{3}, "3", {"a"}}, 1, "aa", "a"},
           {{{2, 2}, "2(x2)", {"a", "b"}}, 2, "ab", "ab"},
           {{{12, 12, 1}, "12(x2),1", {"a", "b", "c"}},
            4,
            "aaaaaaaaaabbbbbbbbbbb",
            "aabc"},
           {{{1, 2, 1}, "1,2,1", {"a", "b", "c"}}, 3, "b", "abc"}}) {
    CAPTURE(given.as_slurm_says);
    const TemporaryFolder folder;
    const int tasks =
        std::accumulate(given.counts.begin(), given.counts.end(), 0);
    const Outcome script = RunProgram(
        kLauncher,
        {"-n", std::to_string(tasks - servers), "--ps", std::to_string(servers),
         "--allow-plaintext", "--emit", "slurm", "/bin/sh", "-c",
         "echo \"$SLUICE_CONFIG\" > told-$SLURM_PROCID; "
         "echo $SLURM_NODEID ${SLURM_STEP_ID-none} \"$1\" > is-$SLURM_PROCID",
         "sh", "a 'b' $c"});
    CAPTURE(script.err);
    REQUIRE(script.code == 0);
    const Outcome ran = Sbatch(folder, script.out, given);
    CAPTURE(ran.err);
    REQUIRE(ran.code == 0);
    json cluster;
    std::set<std::string> seen;
    for (int task = 0; task < tasks; ++task) {
      const json told =
          json::parse(TextOf(folder / fmt::format("told-{}", task)));
      if (cluster.is_null()) cluster = told["cluster"];
      CHECK(told["cluster"] == cluster);
      const std::string at = cluster[told["task"]["type"].get<std::string>()]
                                    [told["task"]["index"].get<size_t>()];
      CHECK(seen.insert(at).second);
      // At its own node, and nothing that Slurm says of its rank.
      const size_t node = std::find(given.hosts.begin(), given.hosts.end(),
                                    at.substr(0, at.find(':'))) -
                          given.hosts.begin();
      CHECK(TextOf(folder / fmt::format("is-{}", task)) ==
            fmt::format("{} none a 'b' $c\n", node));
    }
    const auto hosts_of = [&](const char* job) {
      std::string hosts;
      for (const json& at : cluster[job]) hosts += at.get<std::string>()[0];
      return hosts;
    };
    CHECK(hosts_of("worker") == worker_hosts);
    CHECK(hosts_of("ps") == server_hosts);
  }
}

TEST_CASE("with --port Slurm's tasks of a node listen one behind another") {
  const TemporaryFolder folder;
  const auto script = [](const Words& more) {
    const Outcome made = RunProgram(
        kLauncher,
        Joined({"-n", "2", "--allow-plaintext", "--emit", "slurm", "--port",
                "4000"},
               Joined(more, {"/bin/sh", "-c",
                             "echo \"${SLUICE_CONFIG-$SLUICE_FIRST_PORT}\" "
                             "> told-$SLURM_PROCID"})));
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    return made.out;
  };
  CHECK(Sbatch(folder, script({})).code == 0);
  CHECK(TextOf(folder / "told-1") == "4000\n");
  CHECK(Sbatch(folder, script({"--ps", "2"}), {{2, 2}, "2(x2)", {"a", "b"}})
            .code == 0);
  const json wanted = json::parse(
      R"({"worker": ["a:4000", "b:4000"], "ps": ["a:4001", "b:4001"]})");
  for (int task = 0; task < 4; ++task) {
    const json told =
        json::parse(TextOf(folder / fmt::format("told-{}", task)));
    CHECK(told["cluster"] == wanted);
  }
}

TEST_CASE(
    "where a worker of Slurm's fails its servers end, and all begin anew") {
  const TemporaryFolder folder;
  const Outcome script = RunProgram(
      kLauncher,
      {"-n", "2", "--ps", "1", "--allow-plaintext", "--max-restarts", "2",
       "--emit", "slurm", "/bin/sh", "-c",
       "case $SLUICE_CONFIG in *'\"task\":{\"type\":\"worker\",\"index\":1}'*) "
       "exit 3 ;; esac; exec sleep 1000"});
  REQUIRE(script.code == 0);
  const Outcome ran = Sbatch(folder, script.out, {{3}, "3"});
  CAPTURE(ran.err);
  CHECK(ran.code == 3);
  CHECK(testing::Lines(TextOf(folder / "starts")) == 3);
}

TEST_CASE("what others would not take is one line") {
  const Words emit = {"-n", "12", "--emit", "kubernetes", "--image", "i"};
  for (const auto& [words, part] :
       {std::pair(Joined(emit, {"./My_Program"}), "is no name for Kubernetes"),
        std::pair(Joined(emit, {"--job-name", "3d", "p"}), "a letter first"),
        std::pair(Joined(emit, {"./3dnet"}), "a letter first"),
        std::pair(Joined(emit, {"--job-name", std::string(61, 'a'), "p"}),
                  "at most 60"),
        std::pair(Joined(emit, {"--ps", "11", "--job-name",
                                std::string(58, 'a'), "p"}),
                  "at most 57"),
        std::pair(Joined(emit, {"--claim", "data", "p"}), "wanted NAME:/PATH"),
        std::pair(Words{"-n", "2", "--emit", "kubernetes", "p"},
                  "wants --image"),
        std::pair(Words{"-n", "2", "--emit", "slurm", "--job-name", "a b", "p"},
                  "is more than letters")}) {
    CheckError(RunProgram(kLauncher, words), "sluicerun", 1, part);
  }
  CheckError(RunProgram(kLauncher, {"-n", "2", "--image", "i", "p"}),
             "sluicerun", 2, "--emit");
  CheckError(
      RunProgram(kLauncher, Joined(emit, {"--make-certificates", "d", "p"})),
      "sluicerun", 2, "--make-certificates excludes --emit");
  // No certificates are made that these would be the days of.
  for (const Words& own : {Words{"-n", "2"}, Words{"-H", "a,b", "--dry-run"},
                           Joined(emit, {"--allow-plaintext"}),
                           Joined(emit, {"--certificates", "d"})}) {
    CheckError(RunProgram(kLauncher, Joined(own, {"--valid-days", "1", "p"})),
               "sluicerun", 2, "--valid-days is of certificates that");
  }
  for (const Words& own : {Words{"--pin"}, Words{"--output-dir", "d"}}) {
    CheckError(RunProgram(kLauncher, Joined(own, Joined(emit, {"p"}))),
               "sluicerun", 2, "not with --emit");
  }
  CheckError(RunProgram(kLauncher, {"--make-certificates", "d"}), "sluicerun",
             2, "--processes");
}

}  // namespace
}  // namespace sluice
