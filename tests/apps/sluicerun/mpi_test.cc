// Programs whose processes mpirun has started, through MPI.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/dist.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "graph/builder.h"
#include "graph/ops/collective.h"
#include "graph/session/session.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
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

TEST_CASE("under mpirun what is beside the computation changes no bit") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  for (const char* overlap : {"on", "off"}) {
    CAPTURE(overlap);
    // Several reductions a step, most of which are worth a thread.
    const Outcome outcome =
        UnderMpi(2, Training(folder / overlap,
                             {"--steps", "6", "--threads", "1", "--overlap",
                              overlap, "--bucket", "65536"}));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
  }
  CheckSameTensors(NewestTensors(folder / "on"), NewestTensors(folder / "off"));
}

// The very same accuracy: that of one process, of as many digits.
TEST_CASE("under mpirun an evaluation is that of one process") {
  if (!HasMpi()) return;
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(Training(log, {"--steps", "8"})).code == 0);
  const auto figures = [](const std::string& out) {
    const size_t begin = out.find("accuracy");
    REQUIRE(begin != std::string::npos);
    return out.substr(begin, out.find(';') - begin);
  };
  const std::string alone = figures(RunMnist({"eval", "--log-dir", log}).out);
  for (const int size : {2, 3}) {
    const Outcome outcome = UnderMpi(size, {"eval", "--log-dir", log});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(testing::Lines(outcome.out) == 1);
    CHECK(figures(outcome.out) == alone);
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

// This program's case of that name as four processes, which say when they are
// done.
void CheckVerbs(const std::string& test_case) {
  CAPTURE(test_case);
  const Outcome outcome = RunProgram(
      kMpirun, {"--oversubscribe", "-np", "4",
                std::string(SLUICE_BIN_DIR) + "/apps_tests", "--no-skip",
                "--minimal", "--test-case=" + test_case});
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(Contains(outcome.out, fmt::format("rank {} of 4 is done", rank)));
  }
}

void SayDone() {
  std::printf("rank %d of %d is done\n", dist::Rank(), dist::Size());
}

TEST_CASE("rank: verbs through MPI" * doctest::skip()) {
  dist::InitByMpi();
  const int rank = dist::Rank();
  REQUIRE(dist::Size() == 4);
  CHECK(dist::LocalRank() == rank);
  CHECK(dist::LocalSize() == 4);
  const auto mine = static_cast<float>(rank);
  CHECK(dist::AllReduce("mean", Tensor::Scalar(mine)).At(0) == 1.5);
  CHECK(dist::AllReduce("sum", Tensor::Scalar(int64_t{rank}), Reduction::kSum)
            .IntAt(0) == 6);
  CHECK(dist::AllGather("all", Tensor::Scalar(mine))
            .BitEqual(Tensor::Array<float>({4}, {0, 1, 2, 3})));
  CHECK(dist::Broadcast("last", Tensor::Scalar(mine), 3).At(0) == 3);
  const Tensor own = dist::ReduceScatter(
      "rows", Tensor::Array<float>({4}, {mine, mine + 1, mine + 2, mine + 3}));
  CHECK(own.BitEqual(Tensor::Array<float>({1}, {mine + 1.5F})));
  const Tensor dealt = dist::AllToAll(
      "dealt",
      Tensor::Array<float>({4}, {mine, mine + 10, mine + 20, mine + 30}));
  CHECK(dealt.BitEqual(Tensor::Array<float>(
      {4}, {10 * mine, 10 * mine + 1, 10 * mine + 2, 10 * mine + 3})));
  // Those that have data, and those that have none.
  for (int batch = 0; batch < rank; ++batch) {
    const Tensor sum =
        dist::AllReduce("x", Tensor::Scalar(int64_t{1}), Reduction::kSum);
    CHECK(sum.IntAt(0) == 3 - batch);
  }
  CHECK(dist::Join() == 3);
  dist::Barrier();
  SayDone();
  dist::Shutdown();
}

TEST_CASE("rank: parts through MPI" * doctest::skip()) {
  dist::InitByMpi();
  const int rank = dist::Rank();
  dist::Split("rows", rank / 2, /*key=*/-rank);
  dist::Split("columns", rank % 2);
  dist::Split("first", rank == 0 ? 0 : -1);
  {
    const std::shared_ptr<Collective> job = dist::JobCollective();
    CHECK(job->Subgroup("rows")->rank() == 1 - rank % 2);
    CHECK(job->Subgroup("columns")->rank() == rank / 2);
    CHECK((job->Subgroup("first") != nullptr) == (rank == 0));
    // Ranks come to them in different orders, and go on by themselves.
    std::array<bool, 3> right = {true, true, true};
    const auto often = [&](size_t which, Collective& group, int64_t wanted,
                           bool late) {
      if (late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (int run = 0; run < 100 && right[which]; ++run) {
        std::vector<int64_t> sums(run % 2 == 0 ? 3 : 20'000, rank + 1);
        right[which] =
            group
                .AllReduce("x", DType::kInt64, sums.data(),
                           static_cast<int64_t>(sums.size()), Reduction::kSum)
                .ok() &&
            sums.front() == wanted && sums.back() == wanted;
      }
    };
    std::thread row([&] {
      often(0, *job->Subgroup("rows"), rank < 2 ? 3 : 7, rank % 2 == 1);
    });
    std::thread column([&] {
      often(1, *job->Subgroup("columns"), rank % 2 == 0 ? 4 : 6, rank < 2);
    });
    often(2, *job, 10, rank == 2);
    row.join();
    column.join();
    for (const bool each : right) CHECK(each);
    // And the ops of a graph.
    Graph graph;
    const Output weight =
        graph.Variable("w", Filled(static_cast<float>(rank), {}));
    const Output gathered = AllGather(
        graph.Constant(Tensor::Array<int64_t>({1}, {rank})), "g", "columns");
    Session session(graph, {.collective = job});
    session.Initialize();
    dist::BroadcastVariables(session, graph.Variables(), /*root=*/2);
    CHECK(session.Read(weight).At(0) == 2);
    CHECK(session.Run({}, gathered)
              .BitEqual(Tensor::Array<int64_t>({2}, {rank % 2, rank % 2 + 2})));
  }
  SayDone();
  dist::Shutdown();
}

TEST_CASE("rank: errors through MPI" * doctest::skip()) {
  dist::InitByMpi();
  const int rank = dist::Rank();
  dist::Split("rows", rank / 2);
  const std::string name = rank == 1 ? "b" : "a";
  const Status row = dist::JobCollective()->Subgroup("rows")->Barrier(name);
  CHECK(row.ok() == (rank >= 2));
  CHECK((rank >= 2 ||
         Contains(row.message(),
                  "group 'rows' of ranks 0, 1 of 4: ranks are at different "
                  "collectives: rank 0 of 2 at barrier 'a', rank 1 at barrier "
                  "'b'")));
  dist::Barrier();  // that is none of theirs
  std::string error;
  try {
    dist::AllToAll("t", Tensor::Zeros(DType::kInt32, {rank == 2 ? 3 : 4}));
  } catch (const Error& failed) {
    error = failed.what();
  }
  CHECK(error ==
        "rank 2 of 4 failed: all-to-all 't' of shape [3]: wanted a first "
        "dimension that is a multiple of 4");
  SayDone();
  dist::Shutdown();
}

// As programs that return from main.
TEST_CASE("rank: no end through MPI" * doctest::skip()) {
  dist::InitByMpi();
  dist::Split("rows", dist::Rank() / 2);
  CHECK(dist::AllReduce("ranks", Tensor::Scalar(1.0F), Reduction::kSum).At(0) ==
        4);
  SayDone();
}

TEST_CASE("under mpirun programs of verbs reduce, split and learn of errors") {
  if (!HasMpi()) return;
  CheckVerbs("rank: verbs through MPI");
  CheckVerbs("rank: parts through MPI");
  CheckVerbs("rank: errors through MPI");
  CheckVerbs("rank: no end through MPI");
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
