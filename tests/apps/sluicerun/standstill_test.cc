// Ranks that stand still (SIGSTOP) where nobody but the launcher misses them:
// when the others have ended, and, in an elastic job, before a first group.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/stand_in_ssh.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::CodeOf;
using testing::Contains;
using testing::Job;
using testing::Joined;
using testing::kLauncher;
using testing::Process;
using testing::Rank;
using testing::RunProgram;
using testing::StandInSsh;
using testing::StandsStill;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::Words;

// Runs what it is to run on a host here. In its own process, as ssh does.
Words OverHosts(const TemporaryFolder& folder, int size) {
  const std::string ssh = folder / "ssh";
  std::ofstream(ssh) << "#!/bin/sh\nfor last; do :; done\n"
                        "exec /bin/sh -c \"$last\"\n";
  chmod(ssh.c_str(), 0700);
  std::string hosts;
  for (int i = 0; i < size; ++i) {
    hosts += fmt::format("{}127.0.0.{}", i == 0 ? "" : ",", i + 1);
  }
  return {"--ssh", ssh, "--allow-plaintext", "-H", hosts};
}

TEST_CASE("one that stands still when others have ended ends the job") {
  for (const bool elsewhere : {false, true}) {
    for (const int still : {0, 1}) {
      CAPTURE(elsewhere);
      CAPTURE(still);
      const TemporaryFolder folder;
      const Process process(
          kLauncher,
          Job(3,
              fmt::format("[ $SLUICE_RANK = {} ] || exit 0; kill -STOP $$",
                          still),
              elsewhere ? OverHosts(folder, 3) : Words(),
              {"--peer-timeout", "1"}));
      CHECK(CodeOf(process) == 128 + SIGKILL);
      const std::string err = process.err();
      CAPTURE(err);
      const size_t said = err.find(fmt::format("rank {}", still));
      CHECK(said != std::string::npos);
      CHECK(
          Contains(err, ", of a job that others have ended, has stood still"));
      CHECK(Contains(err, "(SIGSTOP), and is killed"));
      CHECK(Contains(err, "ended by SIGKILL"));
      CHECK(err.find("rank 2") == std::string::npos);
    }
  }
}

TEST_CASE("who stands still is not killed before its time, nor all at once") {
  SUBCASE("one that goes on") {
    const Process process(
        kLauncher,
        Job(2, "[ $SLUICE_RANK = 1 ] || exit 0; kill -STOP $$; echo again"));
    AwaitTrue([&] {
      return Rank(process.pid(), 0) == 0 && StandsStill(Rank(process.pid(), 1));
    });
    kill(Rank(process.pid(), 1), SIGCONT);
    CHECK(CodeOf(process) == 0);
    CHECK(process.out() == "[1] again\n");
  }
  SUBCASE("a job that is stopped as a whole, for longer than that") {
    const Process process(kLauncher, Job(2, "kill -STOP $$; echo again", {},
                                         {"--peer-timeout=0.3"}));
    AwaitTrue([&] {
      return StandsStill(Rank(process.pid(), 0)) &&
             StandsStill(Rank(process.pid(), 1));
    });
    std::this_thread::sleep_for(std::chrono::seconds(1));
    // Both, so that neither ends while the other stands still.
    const pid_t ranks[] = {Rank(process.pid(), 0), Rank(process.pid(), 1)};
    kill(process.pid(), SIGSTOP);
    for (const pid_t rank : ranks) kill(rank, SIGCONT);
    AwaitTrue([&] { return !StandsStill(ranks[0]) && !StandsStill(ranks[1]); });
    kill(process.pid(), SIGCONT);
    CHECK(CodeOf(process) == 0);
    CHECK(process.err().empty());
  }
}

// In the plan that hosts are told, so that no time has to pass.
TEST_CASE("how long is waited is what the program's flag says, if it may") {
  for (const auto& [text, seconds] :
       {std::pair("0.5", "0.5"), std::pair("999999", "999999.0"),
        std::pair("1000000", "1000000.0"), std::pair("1000001", "60.0"),
        std::pair("0", "60.0"), std::pair("soon", "60.0")}) {
    CAPTURE(text);
    const StandInSsh ssh(
        "IFS= read -r plan; printf '%s\\n' \"$plan\" >>$at/plan; exit 3");
    const Words program = {"/bin/true", "--peer-timeout", text};
    CHECK(RunProgram(kLauncher, Joined(ssh.Options(), program)).code != 0);
    CHECK(Contains(TextOf(ssh.at("plan")),
                   fmt::format("\"peer_timeout\":{}", seconds)));
  }
}

TEST_CASE("a job ends whoever stands still, however the others end") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 6; ++trial) {
    const int size = 2 + static_cast<int>(random() % 3);
    // well, late, stopped, killed, or with an exit code
    std::string fates;
    for (int rank = 0; rank < size; ++rank) fates += "wlsskf"[random() % 6];
    if (fates.find_first_of("wlkf") == std::string::npos) fates[0] = 'w';
    CAPTURE(fates);
    Words arguments = {fates, "--peer-timeout", "0.5"};
    const Process process(
        kLauncher,
        Job(size,
            "case $(echo $1 | cut -c$((SLUICE_RANK + 1))) in w) exit 0;; "
            "l) sleep 0.4;; s) kill -STOP $$;; k) kill -KILL $$;; "
            "f) exit 3;; esac",
            {"--timeout-kill", "1"}, arguments));
    const int code = CodeOf(process);
    const auto has = [&](char fate) {
      return fates.find(fate) != std::string::npos;
    };
    CAPTURE(process.err());
    if (!has('s') && !has('k') && !has('f')) {
      CHECK(code == 0);
    } else if (has('f') && !has('k') && !has('s')) {
      CHECK(code == 3);
    } else {
      // Who ends first is the system's.
      CHECK((code == 128 + SIGKILL || (has('f') && code == 3)));
    }
  }
}

// Nobody of them has said how long others are to be waited for.
TEST_CASE(
    "an elastic job that never comes together ends, and says who did not "
    "come") {
  struct Start {
    const char* script;
    std::vector<const char*> said;
  };
  const Start starts[] = {
      {"kill -STOP $$", {"ranks 0, 1, 2 have not come in"}},
      {"exec sleep 1000", {"ranks 0, 1, 2 have not come in"}},
      {"[ $SLUICE_RANK = 1 ] && kill -KILL $$; kill -STOP $$",
       {"ranks 0, 2 have not come in", "rank 1 ended by SIGKILL"}},
      {"[ $SLUICE_RANK = 1 ] && exec sleep 1000; kill -KILL $$",
       {"rank 1 has not come in", "rank 0 ended by SIGKILL",
        "rank 2 ended by SIGKILL"}}};
  for (const bool elsewhere : {false, true}) {
    for (const Start& start : starts) {
      CAPTURE(elsewhere);
      CAPTURE(start.script);
      const TemporaryFolder folder;
      Words options = {"--elastic", "1", "--timeout-kill", "1"};
      if (elsewhere) options = Joined(options, OverHosts(folder, 3));
      // Long enough to hear first, by way of a host, of those that have ended.
      const bool heard = elsewhere && Contains(start.script, "kill -KILL");
      const Process process(kLauncher,
                            Job(3, start.script, options,
                                {"--join-timeout", heard ? "5" : "1.5"}));
      CHECK(CodeOf(process) == 128 + SIGKILL);
      const std::string err = process.err();
      CAPTURE(err);
      for (const char* part : start.said) {
        std::string words = part;
        // "rank 1 on 127.0.0.2"
        const size_t ended = words.find(" ended");
        if (elsewhere && ended != std::string::npos) {
          words.insert(ended,
                       fmt::format(" on 127.0.0.{}", words[5] - '0' + 1));
        }
        CAPTURE(words);
        CHECK(Contains(err, words));
      }
      CHECK(Contains(err, "shows no sign of life, and is killed"));
    }
  }
}

TEST_CASE("nobody is started for an elastic job that is given up") {
  const Process process(kLauncher,
                        Job(2, "echo $SLUICE_RANK; exec sleep 1000",
                            {"--elastic", "1"}, {"--join-timeout", "1.5"}));
  CHECK(CodeOf(process) == 128 + SIGKILL);
  CHECK(testing::Lines(process.out()) == 2);
  // Each new start of the whole job is counted, and waits as long.
  const Process again(kLauncher, Job(2, "echo $SLUICE_RANK; exec sleep 1000",
                                     {"--elastic", "1", "--max-restarts", "1"},
                                     {"--join-timeout", "1.5"}));
  CHECK(CodeOf(again) == 128 + SIGKILL);
  CAPTURE(again.err());
  CHECK(testing::Lines(again.out()) == 4);
  CHECK(
      Contains(again.err(), "starting the job again in 1 s (restart 1 of 1)"));
}

testing::StruckJob Elastic(int size, int restarts) {
  testing::StruckJob job;
  job.strategy = testing::StruckJob::Strategy::kElasticVirtual;
  job.size = size;
  job.least = 1;
  job.restarts = restarts;
  return job;
}

// All processes of a training, each at a point of its own before there is a
// first group: as it starts, while it comes to meet, or while they connect.
TEST_CASE("an elastic job all of whose processes are struck as they meet") {
  using testing::Strike;
  std::mt19937 random(11);
  for (int trial = 0; trial < 5; ++trial) {
    const int size = 1 + static_cast<int>(random() % 3);
    testing::StruckJob job = Elastic(size, 0);
    for (int rank = 0; rank < size; ++rank) {
      Strike strike;
      strike.number = rank;
      strike.harm =
          random() % 3 == 0 ? Strike::Harm::kKill : Strike::Harm::kStop;
      // The first send of all is the roster's beat, or the meeting.
      strike.phase =
          random() % 3 == 0 ? Strike::Phase::kStart : Strike::Phase::kSending;
      if (strike.phase == Strike::Phase::kSending) {
        strike.then = 1 + static_cast<int>(random() % 3);
      }
      job.strikes.push_back(strike);
    }
    CAPTURE(job.Text());
    const TemporaryFolder folder, marks;
    const Process process(kLauncher, job.Command(folder / "log", marks.path()));
    const int code = CodeOf(process);
    CAPTURE(process.err());
    // A strike that never came leaves a process that trains.
    const bool all = testing::StrikesThatCame(job, marks.path()).size() ==
                     job.strikes.size();
    if (all) CHECK(code != 0);
  }
}

}  // namespace
}  // namespace sluice
