// The launcher across hosts: addresses of the loopback, and network name spaces
// where the system lets us make them, each with an ssh server.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dist/net/tls.h"
#include "tests/places.h"
#include "tests/support/await.h"
#include "tests/support/config_jobs.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/net_hosts.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/program.h"
#include "tests/support/required.h"
#include "tests/support/sshd.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::CheckError;
using testing::CheckSameTensors;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::Lines;
using testing::NewestTensors;
using testing::Outcome;
using testing::Process;
using testing::RunProgram;
using testing::Runs;
using testing::Sshd;
using testing::TemporaryFolder;
using testing::TensorsByName;
using testing::TextOf;
using testing::Words;

constexpr const char* kHosts = "127.0.0.1:2,127.0.0.2:2";

// The launcher's arguments for a script as the ranks.
Words Script(const Sshd& sshd, const Words& options, const std::string& script,
             const Words& arguments = {}) {
  return Joined(
      Joined(Joined(sshd.Options(), options), {"/bin/sh", "-c", script, "sh"}),
      arguments);
}

// Each rank writes its number's file there.
std::string FileOf(const TemporaryFolder& folder, int rank) {
  return folder / std::to_string(rank);
}
pid_t PidOf(const TemporaryFolder& folder, int rank) {
  return std::stoi(TextOf(FileOf(folder, rank)));
}
bool AllWrote(const TemporaryFolder& folder, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (Lines(TextOf(FileOf(folder, rank))) < 1) return false;
  }
  return true;
}

TEST_CASE("ranks on hosts are told who they are, in this folder") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const Outcome outcome = RunProgram(
      kLauncher,
      Script(*sshd, {"-H", kHosts},
             "echo $SLUICE_RANK/$SLUICE_SIZE $SLUICE_LOCAL_RANK/"
             "$SLUICE_LOCAL_SIZE ${SLUICE_COORDINATOR%:*} $(pwd) \"$@\"; echo "
             "e >&2; wc -c </proc/$$/fd/$SLUICE_TOKEN_FD",
             {"a 'b", "$c"}));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  char folder[4096];
  REQUIRE(getcwd(folder, sizeof folder) != nullptr);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(Contains(outcome.out,
                   fmt::format("[{0}] {0}/4 {1}/2 127.0.0.1 {2} a 'b $c\n",
                               rank, rank % 2, folder)));
    CHECK(Contains(outcome.out, fmt::format("[{}] 64\n", rank)));
    CHECK(Contains(outcome.err, fmt::format("[{}] e\n", rank)));
  }
}

// With another token and other certificates, but the job's name.
TEST_CASE("a job on hosts is started again") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  const Outcome outcome = RunProgram(
      kLauncher,
      Script(*sshd, {"-H", kHosts, "--max-restarts", "1"},
             "[ $SLUICE_RANK = 3 ] || exit 0; "
             "echo $SLUICE_JOB $(cat /proc/$$/fd/$SLUICE_TOKEN_FD) >> $1; "
             "[ $(wc -l < $1) = 2 ]",
             {folder / "starts"}));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.err, "rank 3 on 127.0.0.2 ended with code 1"));
  CHECK(Contains(outcome.err, "(restart 1 of 1)"));
  std::istringstream starts(TextOf(folder / "starts"));
  std::string job, token, job_again, token_again;
  starts >> job >> token >> job_again >> token_again;
  CHECK(job == job_again);
  CHECK(token.size() == 64);
  CHECK(token_again.size() == 64);
  CHECK(token != token_again);
}

TEST_CASE("a host whose shell greets everybody runs its ranks, too") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  std::ofstream(folder / "greets")
      << "#!/bin/sh\necho welcome\nexec " << kLauncher << " \"$@\"\n";
  chmod((folder / "greets").c_str(), 0700);
  const Outcome outcome = RunProgram(
      kLauncher,
      Script(*sshd, {"-H", kHosts, "--remote-sluicerun", folder / "greets"},
             "echo rank $SLUICE_RANK"));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.err, "sluicerun: 127.0.0.1: welcome\n"));
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(Contains(outcome.out, fmt::format("[{0}] rank {0}\n", rank)));
  }
}

// What the agent says stands right behind it.
TEST_CASE("a greeting that ends no line is said, and so is all that follows") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  std::ofstream(folder / "greets")
      << "#!/bin/sh\nprintf welcome\nexec " << kLauncher << " \"$@\"\n";
  chmod((folder / "greets").c_str(), 0700);
  const std::string port = std::to_string(testing::FreePorts(1)[0]);
  // More than the agent sends ahead of what is taken.
  const std::string much(size_t{1} << 20, 'x');
  for (const Words& options :
       std::vector<Words>{{}, {"--port", port}, {"--elastic", "2"}}) {
    const Outcome outcome = RunProgram(
        kLauncher,
        Script(*sshd,
               Joined({"-H", kHosts, "--remote-sluicerun", folder / "greets"},
                      options),
               "head -c 1048576 /dev/zero | tr '\\0' x; echo; "
               "echo rank $SLUICE_RANK; echo e >&2"));
    CAPTURE(options.size());
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    std::string out = outcome.out;  // shorter, for messages
    for (size_t at = 0; (at = out.find(much)) != std::string::npos;) {
      out.replace(at, much.size(), "much");
    }
    for (int rank = 0; rank < 4; ++rank) {
      // Rank 0's the launcher hears itself, which waits for its address.
      if (rank == 0 && options.empty()) {
        CHECK(Contains(outcome.err, "sluicerun: 127.0.0.1: welcome\n"));
      } else {
        CHECK(Contains(out, fmt::format("[{}] welcome\n", rank)));
      }
      CHECK(Contains(out, fmt::format("[{}] much\n", rank)));
      CHECK(Contains(out, fmt::format("[{0}] rank {0}\n", rank)));
      CHECK(Contains(outcome.err, fmt::format("[{}] e\n", rank)));
    }
  }
}

// Counts how often the token and a line of the key are in what others can read
// of any process. The patterns are a builtin's words, of no process.
TEST_CASE("no secret is in an argument or a variable of any process") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  const Outcome outcome = RunProgram(
      kLauncher,
      Script(*sshd, {"-H", kHosts},
             "token=$(cat /proc/$$/fd/$SLUICE_TOKEN_FD); "
             "key=$(grep -A1 'BEGIN.*PRIVATE KEY' "
             "/proc/$$/fd/$SLUICE_CREDENTIALS_FD | tail -n 1); "
             "echo ${#token} ${#key}; sleep 1; "
             "text=$(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline "
             "2>/dev/null | tr '\\0' '\\n'); echo read ${#text}; "
             "case \"$text\" in *\"$token\"*|*\"$key\"*) echo seen;; esac"));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(Contains(outcome.out, fmt::format("[{0}] 64 64\n", rank)));
    CHECK(Contains(outcome.out, fmt::format("[{0}] read ", rank)));
  }
  CHECK(outcome.out.find("seen") == std::string::npos);
}

TEST_CASE("the first that fails ends those of other hosts, also deaf ones") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = RunProgram(
      kLauncher,
      Script(*sshd, {"-H", kHosts, "--timeout-kill", "2"},
             "trap '' TERM; echo $$ >$1/$SLUICE_RANK; "
             "if [ $SLUICE_RANK = 3 ]; then while [ ! -s $1/0 ] || [ ! -s "
             "$1/1 ] || [ ! -s $1/2 ]; do sleep 0.1; done; echo so bad >&2; "
             "exit 7; fi; while :; do sleep 0.1; done",
             {folder.path()}));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 7);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  // What the host's shell says where it begins may stand between.
  CHECK(Contains(outcome.err,
                 "sluicerun: rank 3 on 127.0.0.2 ended with code 7; its last "
                 "lines:\n"));
  CHECK(outcome.err.ends_with("\n  so bad\n"));
  AwaitTrue([&] {
    for (int rank = 0; rank < 3; ++rank) {
      if (Runs(PidOf(folder, rank))) return false;
    }
    return true;
  });
}

TEST_CASE("a signal goes to every rank of every host once") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  const Process process(
      kLauncher,
      Script(*sshd, {"-H", kHosts},
             "n=0; trap 'n=$((n+1))' INT; echo $$ >$1/$SLUICE_RANK; "
             "while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo got $n",
             {folder.path()}));
  AwaitTrue([&] { return AllWrote(folder, 4); });
  process.Kill(SIGINT);
  CHECK(process.Wait() == 0);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(Contains(process.out(), fmt::format("[{}] got 1\n", rank)));
  }
}

TEST_CASE("killed, the launcher leaves no rank on any host") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd) return;
  const TemporaryFolder folder;
  const Process process(kLauncher,
                        Script(*sshd, {"-H", kHosts, "--timeout-kill", "1"},
                               "trap '' TERM; echo $$ >$1/$SLUICE_RANK; "
                               "while :; do sleep 0.1; done",
                               {folder.path()}));
  AwaitTrue([&] { return AllWrote(folder, 4); });
  process.Kill(SIGKILL);
  CHECK(process.Wait() == -SIGKILL);
  AwaitTrue([&] {
    for (int rank = 0; rank < 4; ++rank) {
      if (Runs(PidOf(folder, rank))) return false;
    }
    return true;
  });
}

TEST_CASE("a host that cannot be reached, a folder it has not, no program") {
  const auto sshd = Sshd::Start({"127.0.0.1"});
  if (!sshd) return;
  const Outcome nobody = RunProgram(
      kLauncher, Script(*sshd, {"-H", "127.0.0.1,127.0.0.3"}, "sleep 100"));
  CHECK(nobody.code == 255);
  CHECK(Contains(nobody.err, "rank 1 on 127.0.0.3 ended with code 255"));
  const Outcome first = RunProgram(
      kLauncher, Script(*sshd, {"-H", "127.0.0.3,127.0.0.1"}, "sleep 100"));
  CHECK(first.code == 255);
  CHECK(Contains(first.err, "rank 0 on 127.0.0.3 ended with code 255"));
  const Outcome missing = RunProgram(
      kLauncher,
      Joined(sshd->Options(), {"-H", "127.0.0.1:2", "no-such-program"}));
  CHECK(missing.code == 127);
  CHECK(Contains(missing.err, "cannot run 'no-such-program' on this host"));
}

TEST_CASE("a name that is the loopback's is one where there is no other host") {
  const auto sshd = Sshd::Start({"127.0.0.1"});
  if (!sshd) return;
  const std::string script =
      "[ -z \"$SLUICE_SERVER\" ] || exec sleep 100; echo rank $SLUICE_RANK";
  for (const Words& options :
       std::vector<Words>{{}, {"--ps", "1"}, {"--elastic", "1"}}) {
    const Outcome alone = RunProgram(
        kLauncher,
        Script(*sshd, Joined({"-H", "localhost:2"}, options), script));
    CAPTURE(options.size());
    CAPTURE(alone.err);
    CHECK(alone.code == 0);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(Contains(alone.out, fmt::format("[{0}] rank {0}\n", rank)));
    }
    const Outcome two = RunProgram(
        kLauncher,
        Script(*sshd, Joined({"-H", "localhost,127.0.0.1"}, options), script));
    CHECK(two.code == 1);
    CHECK(Contains(two.err, "'localhost' is "));
  }
}

TEST_CASE("a hostfile is Open MPI's; what makes no sense is one line") {
  const TemporaryFolder folder;
  std::ofstream(folder / "hosts")
      << "# ours\na slots=2 max_slots=4\n\nuser@b\t# one\nc max-slots= 2 "
         "slots\t = 3\na slots =1\n";
  const Outcome outcome = RunProgram(
      kLauncher,
      {"--hostfile", folder / "hosts", "--dry-run", "--ssh-port", "22", "p"});
  CHECK(outcome.code == 0);
  REQUIRE(Lines(outcome.out) == 7);
  CHECK(Contains(outcome.out,
                 "SLUICE_RANK=2 SLUICE_LOCAL_SIZE=3 "
                 "SLUICE_LOCAL_RANK=2 SLUICE_COORDINATOR=a:PORT"));
  CHECK(Contains(outcome.out, " -p 22 user@b '"));
  CHECK(Contains(outcome.out,
                 "SLUICE_RANK=6 SLUICE_LOCAL_SIZE=3 "
                 "SLUICE_LOCAL_RANK=2"));
  const Outcome few =
      RunProgram(kLauncher, {"-n", "2", "-H", "a:2,b:2", "--dry-run", "p"});
  CHECK(Lines(few.out) == 2);
  CHECK(few.out.find(" b '") == std::string::npos);
  for (const char* line : {"a slots", "a slots=", "a slots 2", "a = 2", "=2",
                           "a slots==2", "a slots=2=", "a max=2"}) {
    CAPTURE(line);
    std::ofstream(folder / "bad") << line << "\n";
    CheckError(
        RunProgram(kLauncher, {"--hostfile", folder / "bad", "--dry-run", "p"}),
        "sluicerun", 1, line);
  }
  for (const Words& bad : std::vector<Words>{
           {"-n", "5", "-H", "a:2,b:2"},
           {"-H", "a:0"},
           {"-H", "a:x"},
           {"-H", "a:"},
           {"-H", ""},
           {"-H", "a,,b"},
           {"-H", "-oProxyCommand=x"},
           {"-H", "a b"},
           {"--hostfile", folder / "none"},
           {"--hostfile", "/dev/null"},
           {"-H", "a", "--hostfile", folder / "hosts"},
           {"-H", "a", "--allow-plaintext", "--certificates", "d"}}) {
    const Outcome refused =
        RunProgram(kLauncher, Joined(bad, {"--dry-run", "p"}));
    CAPTURE(bad.back());
    CHECK(refused.code != 0);
    CHECK(refused.out == "");
    CHECK(Lines(refused.err) == 1);
  }
}

// Of three processes on this host, without encryption.
TensorsByName TrainedHere(const Words& training) {
  const TemporaryFolder folder;
  const Outcome outcome = RunProgram(
      kLauncher,
      Joined(Joined({"-n", "3"}, training), {"--log-dir", folder / "log"}));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return NewestTensors(folder / "log");
}

// Without --deterministic sums over hosts are rounded otherwise.
Words Training() {
  return Joined({testing::kMnist},
                testing::OnMnist("train", {"--epochs", "1", "--threads", "1",
                                           "--deterministic"}));
}

TEST_CASE("hosts train the bits that one host trains") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  const TemporaryFolder folder;
  const Outcome outcome = RunProgram(
      kLauncher,
      Joined(Joined(sshd->Options(), {"-H", "127.0.0.1:2,127.0.0.2"}),
             Joined(Training(),
                    {"--log-dir", folder / "log", "--transport", "tcp"})));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CheckSameTensors(NewestTensors(folder / "log"), TrainedHere(Training()));
}

TEST_CASE("hosts with addresses of their own train the same bits") {
  if (!dist::HasTls()) return;
  const testing::NetHosts hosts(213, 2);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  const auto two = Sshd::Start({hosts.AddressOf(0)}, hosts.Inside(0));
  if (!two) return;
  // The same keys and port there.
  const auto three = two->Twin(hosts.AddressOf(1), hosts.Inside(1));
  REQUIRE(three != nullptr);
  const Words where = {"-H", "10.213.0.2:2,10.213.0.3"};
  const Words training = Training();
  {
    const TemporaryFolder folder;
    const Outcome outcome = RunProgram(
        kLauncher, Joined(Joined(two->Options(), where),
                          Joined(training, {"--log-dir", folder / "log"})));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CheckSameTensors(NewestTensors(folder / "log"), TrainedHere(training));
  }
  // In the clear where it is wanted, and only then; at listed ports.
  const TemporaryFolder folder;
  const Words uneven = {"-H", "10.213.0.2,10.213.0.3:2"};
  const Outcome plain = RunProgram(
      kLauncher,
      Joined(Joined(two->Options(), {"--allow-plaintext", "--port", "4000"}),
             Joined(uneven, Joined(training, {"--log-dir", folder / "log"}))));
  CAPTURE(plain.err);
  CHECK(plain.code == 0);
  CHECK(Contains(TextOf(folder / "log/run.json"), "\"nodes\": 2,"));
}

}  // namespace
}  // namespace sluice
