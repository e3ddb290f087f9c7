// Elastic jobs over hosts: addresses of the loopback, and network name spaces
// where the system lets us make them, each with an ssh server. Whatever happens
// to ranks, hosts and the ways to them, a training has the bits of one process.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/apps/sluicerun/struck_results.h"
#include "tests/support/net_hosts.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/required.h"
#include "tests/support/sshd.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::CodeOf;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::NetHosts;
using testing::NewestTensors;
using testing::Process;
using testing::Sshd;
using testing::Strike;
using testing::StruckJob;
using testing::TemporaryFolder;
using testing::Words;
using Harm = Strike::Harm;
using Phase = Strike::Phase;

// Of virtual workers, so that the number of processes changes no bit.
StruckJob JobOf(int size, int least, int restarts,
                std::vector<Strike> strikes) {
  StruckJob job;
  job.strategy = StruckJob::Strategy::kElasticVirtual;
  job.size = size;
  job.least = least;
  job.restarts = restarts;
  job.epochs = 20;
  job.pace_us = 4000;
  job.strikes = std::move(strikes);
  return job;
}

Strike At(int rank, Harm harm, Phase phase, int at, int then = 0) {
  Strike strike;
  strike.number = rank;
  strike.harm = harm;
  strike.phase = phase;
  strike.at = at;
  strike.then = then;
  return strike;
}

// The job on hosts, with its folders.
class OnHosts {
 public:
  OnHosts(const StruckJob& job, const Words& hosts)
      : job_(job), hosts_(hosts) {}
  std::unique_ptr<Process> Start(bool struck = true) const {
    return std::make_unique<Process>(
        kLauncher, Joined(hosts_, job_.Command(folder_ / "log",
                                               struck ? marks_.path() : "")));
  }
  bool Came(int strike) const {
    const std::string mark = marks_.path() + "/" + std::to_string(strike);
    return access(mark.c_str(), F_OK) == 0;
  }
  void CheckWhole() const {
    CheckSameTensors(NewestTensors(folder_ / "log"),
                     testing::Undisturbed(job_));
  }

 private:
  const StruckJob job_;
  const Words hosts_;
  const TemporaryFolder folder_, marks_;
};

TEST_CASE("ranks of hosts that are killed or stand still, and one that comes") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  const Words hosts =
      Joined(sshd->Options(), {"-H", "127.0.0.1:2,127.0.0.2:2"});
  // A rank of each host; rank 0, which the others go on without, is one.
  const OnHosts job(JobOf(4, 2, 1,
                          {At(0, Harm::kKill, Phase::kSending, 20, 3),
                           At(3, Harm::kStop, Phase::kReading, 60)}),
                    hosts);
  const auto process = job.Start();
  const int code = CodeOf(*process);
  CAPTURE(process->err());
  CHECK(code == 0);
  CHECK(Contains(process->err(), "rank 0 on 127.0.0.1 ended by SIGKILL"));
  CHECK(Contains(process->err(), "rank 3 shows no sign of life"));
  CHECK(Contains(process->err(), "rank 3 on 127.0.0.2 ended by SIGKILL"));
  CHECK(Contains(process->err(), "(restart 1 of 1)"));
  CHECK(Contains(process->err(), "go on from step"));
  job.CheckWhole();
}

TEST_CASE("without its launcher an elastic job of hosts ends, and goes on") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  const OnHosts job(JobOf(2, 1, 0, {At(1, Harm::kTell, Phase::kReading, 50)}),
                    Joined(sshd->Options(), {"-H", "127.0.0.1,127.0.0.2"}));
  {
    const auto process = job.Start();
    testing::AwaitTrue([&] { return job.Came(0); });
    process->Kill(SIGKILL);
    CHECK(process->Wait() == -SIGKILL);
  }
  // The folder is somebody's until they have ended.
  int code = 1;
  std::string err;
  for (int i = 0; i < 100 && code != 0; ++i) {
    const auto rest = job.Start(false);
    code = CodeOf(*rest);
    err = rest->err();
    if (code != 0 && !Contains(err, "training that is under way")) break;
    usleep(100'000);
  }
  CAPTURE(err);
  CHECK(code == 0);
  job.CheckWhole();
}

// Two hosts and, where `more`, a third that has nobody to begin with; the
// second is cut off, from the launcher too.
void CutOff(int net, const std::string& slots, bool more, int size,
            int restarts, const std::vector<std::string>& said) {
  if (!dist::HasTls()) return;
  const NetHosts hosts(net, 3);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  const auto first = Sshd::Start({hosts.AddressOf(0)}, hosts.Inside(0));
  if (!first) return;
  const auto second = first->Twin(hosts.AddressOf(1), hosts.Inside(1));
  REQUIRE(second != nullptr);
  const auto third = first->Twin(hosts.AddressOf(2), hosts.Inside(2));
  REQUIRE(third != nullptr);
  std::string list = fmt::format("{}:{},{}:{}", hosts.AddressOf(0), slots,
                                 hosts.AddressOf(1), slots);
  // Which has room for more than the job.
  if (more) list += fmt::format(",{}:8", hosts.AddressOf(2));
  StruckJob what =
      JobOf(size, 1, restarts, {At(0, Harm::kTell, Phase::kReading, 60)});
  // The other comes some ten seconds after, for which ssh waits for the one
  // that does not answer; more where cores are taken.
  if (restarts > 0) what.pace_us = 40'000;
  const OnHosts job(what, Joined(first->Options(), {"-H", list}));
  const auto process = job.Start();
  testing::AwaitTrue([&] { return job.Came(0); });
  REQUIRE(hosts.CutOff(1));
  const int code = CodeOf(*process);
  CAPTURE(process->err());
  CHECK(code == 0);
  for (const std::string& part : said) {
    CAPTURE(part);
    CHECK(Contains(process->err(), part));
  }
  job.CheckWhole();
}

TEST_CASE("a host that is cut off takes its ranks along") {
  CutOff(221, "2", false, 4, 0,
         {"rank 2 on 10.221.0.3", "rank 3 on 10.221.0.3",
          "2 processes go on from step"});
}

TEST_CASE("where a host does not answer another has the rank") {
  CutOff(222, "1", true, 2, 1,
         {"rank 1 on 10.222.0.3",
          "rank 1 on 10.222.0.3 does not answer; started as rank 1 on "
          "10.222.0.4",
          "rank 1 has come in; 2 processes go on from step"});
}

TEST_CASE("all that ranks of hosts print comes through, and how they end") {
  const auto sshd = Sshd::Start({"127.0.0.1"});
  if (!sshd) return;
  const TemporaryFolder folder;
  const testing::Outcome outcome = testing::RunProgram(
      kLauncher,
      Joined(sshd->Options(),
             {"-H", "127.0.0.1:2", "/bin/sh", "-c",
              "seq 1 200000; seq 1 50000 >&2; test $SLUICE_RANK = 1 || exec "
              "touch $1/0; until test -e $1/0; do sleep 0.05; done; kill "
              "-SEGV $$",
              "sh", folder.path()}));
  CHECK(outcome.code == 128 + SIGSEGV);
  CHECK(Contains(outcome.err, "rank 1 on 127.0.0.1 ended by SIGSEGV"));
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [text, last] :
         {std::pair(&outcome.out, 200'000), std::pair(&outcome.err, 50'000)}) {
      // In order, and each once.
      const std::string prefix = fmt::format("[{}] ", rank);
      size_t at = 0;
      int64_t next = 1;
      while ((at = text->find(prefix, at)) != std::string::npos) {
        at += prefix.size();
        if (std::atoll(text->c_str() + at) != next) break;
        ++next;
      }
      CHECK(next == last + 1);
    }
  }
}

}  // namespace
}  // namespace sluice
