// Jobs that something else starts: certificates for them, and what sluicerun
// makes for Slurm, with a stand-in that does as its documentation says.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/deployed.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
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

// Slurm's: as many tasks as it was asked for, and the first that fails ends
// them.
constexpr char kSrun[] =
    "#!/bin/bash\n"
    "[ \"$1\" = --kill-on-bad-exit=1 ] || exit 99; shift\n"
    "echo run >> $STARTS\n"
    "for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=$i \"$@\" & pids[$i]=$!; "
    "done\n"
    "code=0; for pid in ${pids[@]}; do wait $pid || code=$?; done\n"
    "exit $code\n";

// Of a script of the launcher's; the stand-in's environment is a node's with
// two tasks.
Outcome Sbatch(const TemporaryFolder& folder, const std::string& script) {
  Write(folder / "srun", kSrun, 0700);
  Write(folder / "script", script, 0700);
  return RunProgram(
      "/bin/sh",
      {"-c", fmt::format("cd {0} && env PATH={0}:$PATH STARTS={0}/starts "
                         "SLURM_JOB_ID=71 SLURM_STEP_ID=0 SLURM_NODEID=0 "
                         "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "
                         "SLURM_STEP_NODELIST=localhost "
                         "SLUICE_COORDINATOR=127.0.0.1:{1} "
                         "./script",
                         folder.path(), 20000 + getpid() % 10000)});
}

TEST_CASE("a script for Slurm trains what the launcher's job does") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const Outcome script = RunProgram(
      kLauncher, Joined({"-n", "2", "--emit", "slurm", "--job-name", "m-1"},
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

TEST_CASE("what others would not take is one line") {
  const Words emit = {"-n", "12", "--emit", "kubernetes", "--image", "i"};
  for (const auto& [words, part] :
       {std::pair(Joined(emit, {"./My_Program"}), "is no name for Kubernetes"),
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
      RunProgram(kLauncher, {"-n", "2", "--ps", "1", "--emit", "slurm", "p"}),
      "sluicerun", 2, "not with --emit slurm");
  CheckError(RunProgram(kLauncher, {"--make-certificates", "d"}), "sluicerun",
             2, "--processes");
}

}  // namespace
}  // namespace sluice
