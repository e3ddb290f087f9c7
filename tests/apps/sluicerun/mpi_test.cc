// Programs whose processes mpirun has started, through MPI.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::Contains;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::RunMnist;
using testing::RunProgram;
using testing::TemporaryFolder;

constexpr char kMpirun[] = "/usr/bin/mpirun";

bool HasMpi() {
  const bool has = std::filesystem::exists(kMpirun) &&
                   std::filesystem::exists(std::string(SLUICE_BIN_DIR) +
                                           "/libsluice_mpi.so");
  if (!has) MESSAGE("there is no MPI here: skipped");
  // Open MPI asks for both where tests are root's.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  return has;
}

std::vector<std::string> Training(const std::string& log_dir,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--log-dir", log_dir, "--batch-size", "50",
                                  "--deterministic"};
  all.insert(all.end(), more.begin(), more.end());
  return OnMnist("train", all);
}

Outcome UnderMpi(int size, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"--oversubscribe", "-np",
                                    std::to_string(size), testing::kMnist};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--transport", "mpi"});
  return RunProgram(kMpirun, words);
}

TEST_CASE("under mpirun virtual workers leave the bits of one process") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  const std::vector<std::string> four = {"--virtual-workers", "4", "--steps",
                                         "6"};
  REQUIRE(RunMnist(Training(folder / "alone", four)).code == 0);
  for (const int size : {2, 3}) {
    CAPTURE(size);
    const std::string log = folder / std::to_string(size);
    const Outcome outcome = UnderMpi(size, Training(log, four));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CheckSameTensors(NewestTensors(log), NewestTensors(folder / "alone"));
  }
}

TEST_CASE("under mpirun a training ends, and goes on") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  const std::string log = folder / "log";
  const Outcome first =
      UnderMpi(2, Training(log, {"--steps", "4", "--learning-rate", "0.01"}));
  CAPTURE(first.err);
  REQUIRE(first.code == 0);
  const Outcome rest =
      UnderMpi(2, Training(log, {"--steps", "8", "--learning-rate", "0.01"}));
  CAPTURE(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(Contains(rest.out + rest.err, "resuming from step 4"));
  // All of it at once has the same bits.
  REQUIRE(UnderMpi(2, Training(folder / "whole",
                               {"--steps", "8", "--learning-rate", "0.01"}))
              .code == 0);
  CheckSameTensors(NewestTensors(log), NewestTensors(folder / "whole"));
}

TEST_CASE("under mpirun processes that were started differently end") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  // Each with another seed.
  std::string command = std::string("exec ") + testing::kMnist;
  for (const std::string& word : Training(folder / "log", {})) {
    command += " '" + word + "'";
  }
  command += " --transport mpi --seed $OMPI_COMM_WORLD_RANK";
  const Outcome outcome = RunProgram(
      kMpirun, {"--oversubscribe", "-np", "2", "/bin/sh", "-c", command});
  CHECK(outcome.code != 0);
  CHECK(Contains(outcome.err, "of rank 1 of 2 is another than that of rank 0"));
}

TEST_CASE("what MPI is not for is said") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  Outcome outcome = RunMnist(
      Training(folder / "log", {"--transport", "mpi", "--strategy", "none"}));
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "--transport mpi is for --strategy ring"));
  outcome = RunMnist(
      Training(folder / "log", {"--transport", "mpi", "--all-reduce", "ring"}));
  CHECK(Contains(outcome.err, "--all-reduce ring: with --transport mpi"));
}

// Not even a parameter server of sluicerun's, which has no rank: it would be
// an MPI of one, and train by itself.
TEST_CASE("what sluicerun has started is in no MPI") {
  if (!HasMpi()) return;
  for (const char* name : {"SLUICE_RANK", "SLUICE_SERVER"}) {
    CAPTURE(std::string(name));
    TemporaryFolder folder;
    setenv(name, "0", 1);
    const Outcome outcome =
        RunMnist(Training(folder / "log", {"--transport", "mpi"}));
    unsetenv(name);
    CHECK(outcome.code == 1);
    CHECK(Contains(outcome.err, "for processes that mpirun or srun starts"));
    CHECK(!std::filesystem::exists(folder / "log"));
  }
}

}  // namespace
}  // namespace sluice
