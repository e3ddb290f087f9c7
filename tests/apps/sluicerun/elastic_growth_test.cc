// Elastic jobs whose hostfile changes while they run, by others' hands: more
// ranks come, and whatever is wrong with them a training has the bits of one
// process.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/apps/sluicerun/struck_results.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/sshd.h"
#include "tests/support/stand_in_ssh.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::CodeOf;
using testing::Contains;
using testing::Has;
using testing::Joined;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Outcome;
using testing::Process;
using testing::RunProgram;
using testing::Sshd;
using testing::Strike;
using testing::StruckJob;
using testing::TemporaryFolder;
using testing::Words;

// A job whose hosts are those of a file, and its folders. It takes some twenty
// seconds, so that others come long before the end; or rank 0 is held.
class GrowingJob {
 public:
  GrowingJob(int least, int most, const Words& ssh, const std::string& hosts)
      : ssh_(ssh) {
    job_.strategy = StruckJob::Strategy::kElasticVirtual;
    job_.least = least;
    job_.most = most;
    job_.epochs = 30;
    job_.pace_us = 40'000;
    Strike begun;  // rank 0 has, and does nothing
    begun.harm = Strike::Harm::kTell;
    begun.phase = Strike::Phase::kReading;
    begun.at = 10;
    job_.strikes = {begun};
    Write(hosts);
  }

  // Before it starts: rank 0 waits, as soon as it has begun, for GoOn.
  void Hold() {
    job_.strikes[0].harm = Strike::Harm::kHold;
    job_.epochs = 6;
    job_.pace_us = 500;
  }
  void GoOn() const { std::ofstream file(folder_ / "marks/go"); }

  // `before` are words before those of the program.
  void Start(const Words& before = {}) {
    Words words = Joined(ssh_, {"--hostfile", hostfile()});
    words = Joined(words, job_.Command(folder_ / "log", folder_ / "marks"));
    const auto program =
        std::find(words.begin(), words.end(), SLUICE_BIN_DIR "/struck");
    words.insert(program, before.begin(), before.end());
    std::filesystem::create_directory(folder_ / "marks");
    process_ = std::make_unique<Process>(kLauncher, words);
    testing::AwaitTrue(
        [&] { return access((folder_ / "marks/0").c_str(), F_OK) == 0; });
  }
  void Write(const std::string& hosts) {
    std::ofstream(folder_ / "next") << hosts;
    std::filesystem::rename(folder_ / "next", hostfile());
  }
  std::string hostfile() const { return folder_ / "hosts"; }
  std::string log_dir() const { return folder_ / "log"; }
  void AwaitLine(const std::string& part) const {
    testing::AwaitTrue([&] { return Has(process_->err(), part); });
  }
  const Process& process() const { return *process_; }

  // The process that trains, wherever it was started; 0: there is none.
  pid_t ProcessOf(int rank) const {
    const std::string variable = fmt::format("SLUICE_RANK={}", rank) + '\0';
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc", error)) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string at = "/proc/" + name;
      if (Has(testing::TextOf(at + "/cmdline"), folder_ / "log") &&
          Has(testing::TextOf(at + "/environ"), variable)) {
        return static_cast<pid_t>(std::stoi(name));
      }
    }
    return 0;
  }

  void CheckEndsWhole() const {
    const int code = CodeOf(*process_);
    CAPTURE(process_->err());
    CHECK(code == 0);
    CheckSameTensors(NewestTensors(folder_ / "log"),
                     testing::Undisturbed(job_));
  }

 private:
  const Words ssh_;
  StruckJob job_;
  const TemporaryFolder folder_;
  std::unique_ptr<Process> process_;
};

TEST_CASE("ranks on a host that comes join in, and go on without rank 0") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  GrowingJob job(2, 4, sshd->Options(), "127.0.0.1 slots=2\n");
  job.Start();
  job.Write("127.0.0.1 slots=2\n127.0.0.2 slots=8\n");
  // Both at once, and no more than there may be.
  job.AwaitLine("rank 2 has come in; rank 3 has come in; 4 processes go on");
  const pid_t first = job.ProcessOf(0);
  REQUIRE(first > 0);
  kill(first, SIGKILL);
  job.CheckEndsWhole();
  const std::string said = job.process().err();
  CAPTURE(said);
  for (const int rank : {2, 3}) {
    CHECK(Contains(
        said, fmt::format("rank {} on 127.0.0.2 is started ({} has changed)",
                          rank, job.hostfile())));
  }
  CHECK(Contains(said, "rank 0 on 127.0.0.1 ended by SIGKILL"));
  CHECK(Contains(said, "3 processes go on from step"));
  // By whoever leads at last; both addresses are of one host.
  const std::string record = testing::TextOf(job.log_dir() + "/run.json");
  CHECK(Contains(record, "\"workers\": 3,"));
  CHECK(Contains(record, "\"nodes\": 1,"));
  CHECK(!Has(said, "rank 4"));
  CHECK(!Has(said, "restart"));
}

TEST_CASE("what is wrong with those that come is no concern of the others") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  GrowingJob job(2, 3, sshd->Options(), "127.0.0.1 slots=2\n");
  job.Hold();
  job.Start({"/bin/sh", "-c",
             "test $SLUICE_RANK -lt 2 && exec \"$@\"; "
             "echo no licence here >&2; exit 3",
             "sh"});
  job.Write("127.0.0.1 slots=2\n127.0.0.2 slo");
  job.AwaitLine("neither slots=N");
  // Nobody listens there.
  job.Write("127.0.0.1 slots=2\n127.0.0.3\n");
  job.AwaitLine("rank 2 on 127.0.0.3 ended with code 255; its last lines:");
  job.Write("127.0.0.1 slots=2\n127.0.0.2\n");
  job.AwaitLine(
      "rank 2 on 127.0.0.2 ended with code 3; its last lines:\n"
      "  no licence here");
  // The ranks of a host that is no more listed stay.
  job.Write("127.0.0.3\n");
  job.AwaitLine(fmt::format("rank 2 on 127.0.0.3 is started ({} has changed)",
                            job.hostfile()));
  job.GoOn();
  job.CheckEndsWhole();
  const std::string said = job.process().err();
  CAPTURE(said);
  CHECK(!Has(said, "has come in"));
  CHECK(!Has(said, "go on from"));
}

// Which has room elsewhere: it would fail there, too.
TEST_CASE(
    "one that ends with ssh's code of failure is on a host that answers") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2", "127.0.0.3"});
  if (!sshd || !dist::HasTls()) return;
  GrowingJob job(2, 3, sshd->Options(), "127.0.0.1 slots=2\n");
  job.Hold();
  job.Start({"/bin/sh", "-c",
             "test $SLUICE_RANK -lt 2 && exec \"$@\"; "
             "echo no licence here >&2; exit 255",
             "sh"});
  job.Write("127.0.0.1 slots=2\n127.0.0.2\n127.0.0.3\n");
  job.AwaitLine(
      "rank 2 on 127.0.0.2 ended with code 255; its last lines:\n"
      "  no licence here");
  job.GoOn();
  job.CheckEndsWhole();
  const std::string said = job.process().err();
  CAPTURE(said);
  CHECK(!Has(said, "does not answer"));
  CHECK(!Has(said, "rank 2 on 127.0.0.3"));
}

TEST_CASE("a job that begins again has the hosts of its file by then") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  for (const auto& [next, host] :
       {std::pair("127.0.0.2 slots=2\n", "127.0.0.2"),
        std::pair("127.0.0.2 slo", "127.0.0.1")}) {
    const TemporaryFolder folder;
    std::ofstream(folder / "hosts") << "127.0.0.1\n";
    std::ofstream(folder / "next") << next;
    const Outcome outcome = RunProgram(
        kLauncher,
        Joined(sshd->Options(),
               {"--elastic", "1:2", "--hostfile", folder / "hosts",
                "--max-restarts", "1", "/bin/sh", "-c",
                "mv $1/next $1/hosts 2> /dev/null && exit 3; echo $SLUICE_HOST",
                "sh", folder.path()}));
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(Contains(outcome.err, "(restart 1 of 1)"));
    CHECK(Contains(outcome.out, fmt::format("[0] {}\n", host)));
  }
}

TEST_CASE("what there is no growing by is one line") {
  const TemporaryFolder folder;
  const std::string hostfile = folder / "hosts";
  std::ofstream(hostfile) << "a slots=2\n";
  const auto refused = [](const Words& words, int code,
                          const std::string& part) {
    const Outcome outcome = RunProgram(kLauncher, words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(Contains(outcome.err, part));
  };
  refused({"-n", "2", "--elastic", "2:4", "true"}, 2, "--elastic 2:4 and -n 2");
  refused({"-n", "2", "--elastic", "2:4", "true"}, 2,
          "hosts that come later, which are read from --hostfile");
  refused({"-n", "2", "--elastic", "2:4", "--hostfile", hostfile, "true"}, 2,
          "--elastic 2:4 and -n 2");
  refused({"-H", "a,b", "--elastic", "2:4", "true"}, 1,
          "the hosts have 2 slots; hosts that come later are read from "
          "--hostfile");
  refused({"--hostfile", hostfile, "--elastic", "3:8", "true"}, 2,
          "has 2 slots to begin with");
  refused({"--hostfile", hostfile, "--elastic", "4:3", "true"}, 2,
          "never so many");
  refused({"-n", "3", "--hostfile", hostfile, "--elastic", "2:3", "true"}, 1,
          "3 processes, but the hosts have 2 slots");
  // Each of which would have to have one.
  refused(Joined({"--elastic", "2:8", SLUICE_BIN_DIR "/struck"},
                 {"train", "--virtual-workers", "4", "--threads", "1"}),
          1,
          "--virtual-workers 4: of up to 8 processes (--elastic) each must "
          "have one");
  // Without these a share of the batch, of eight examples, though those that
  // begin, on one host here, could share it out.
  const testing::StandInSsh ssh("exec /bin/sh -c \"$2\"");
  std::ofstream(hostfile) << "127.0.0.1 slots=2\n";
  const auto grows_to = [&](const char* sizes) {
    const Words launcher = {"--ssh",      ssh.at("ssh"), "--allow-plaintext",
                            "--hostfile", hostfile,      "--elastic",
                            sizes};
    return Joined(launcher, {SLUICE_BIN_DIR "/struck", "train", "--epochs", "1",
                             "--threads", "1"});
  };
  refused(grows_to("1:9"), 1,
          "up to 9 processes (--elastic): Share: batches of 8 cannot be shared "
          "out among 9 workers");
  CHECK(RunProgram(kLauncher, grows_to("1:8")).code == 0);
  const Outcome planned = RunProgram(
      kLauncher,
      {"--hostfile", hostfile, "--elastic", "1:4", "--dry-run", "true"});
  CHECK(planned.code == 0);
  CHECK(testing::Lines(planned.out) == 2);
  CHECK(Contains(planned.out, "SLUICE_SIZE=4 SLUICE_RANK=1"));
}

}  // namespace
}  // namespace sluice
