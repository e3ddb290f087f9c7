// The launcher, with shell scripts as its ranks.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::ByRank;
using testing::CheckError;
using testing::Contains;
using testing::Job;
using testing::Joined;
using testing::kLauncher;
using testing::Lines;
using testing::Outcome;
using testing::Process;
using testing::RunJob;
using testing::RunProgram;
using testing::Runs;
using testing::StandsStill;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::Words;

std::vector<pid_t> Numbers(const std::string& text) {
  std::istringstream words(text);
  std::vector<pid_t> numbers;
  for (pid_t number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

TEST_CASE("each rank is told who it is and where rank 0 listens") {
  const Outcome outcome = RunJob(
      3,
      "env | grep ^SLUICE_ | grep -v -e _FD= -e _JOB= -e _TEST_ | sort; pwd");
  CHECK(outcome.code == 0);
  CHECK(outcome.err == "");
  const std::map<int, std::string> ranks = ByRank(outcome.out);
  REQUIRE(ranks.size() == 3);
  const std::string start = "SLUICE_COORDINATOR=127.0.0.1:";
  const std::string first = ranks.at(0);
  REQUIRE(first.rfind(start, 0) == 0);
  const std::string port =
      first.substr(start.size(), first.find('\n') - start.size());
  CHECK(std::stoi(port) > 0);
  for (const auto& [rank, text] : ranks) {
    CHECK(text == fmt::format("{}{}\nSLUICE_LOCAL_RANK={}\n"
                              "SLUICE_LOCAL_SIZE=3\nSLUICE_RANK={}\n"
                              "SLUICE_SIZE=3\n{}\n",
                              start, port, rank, rank,
                              std::filesystem::current_path().string()));
  }
}

// Prints the token and how often it is found in what others can read. (A
// shell's "<&12" knows one digit alone.)
constexpr char kReadToken[] =
    "token=$(cat /proc/$$/fd/$SLUICE_TOKEN_FD); echo \"$token\"; "
    "cat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/environ "
    "/proc/$PPID/cmdline | tr '\\0' '\\n' | grep -c \"$token\"; :";

TEST_CASE("a job's ranks share a token that no other process can read") {
  std::set<std::string> tokens;
  for (size_t job = 1; job <= 3; ++job) {
    const Outcome outcome = RunJob(4, kReadToken);
    CHECK(outcome.code == 0);
    for (const auto& [rank, text] : ByRank(outcome.out)) {
      REQUIRE(text.size() == 64 + 3);
      const std::string token = text.substr(0, 64);
      CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
      CHECK(text.substr(64) == "\n0\n");
      tokens.insert(token);
    }
    CHECK(tokens.size() == job);
  }
}

TEST_CASE("rank 0 alone has the listening socket, and it is at the address") {
  // State 0A: listening. 127.0.0.1 is 0100007F there.
  const Outcome outcome = RunJob(
      2,
      "[ $SLUICE_RANK = 1 ] && exec echo ${SLUICE_LISTEN_FD-none}; "
      "link=$(readlink /proc/$$/fd/$SLUICE_LISTEN_FD); echo \"$link\"; "
      "awk -v link=\"$link\" '$4 == \"0A\" && link == \"socket:[\" $10 \"]\" "
      "{print $2}' /proc/net/tcp; printf '0100007F:%04X\\n' "
      "${SLUICE_COORDINATOR#127.0.0.1:}");
  const auto ranks = ByRank(outcome.out);
  CHECK(ranks.at(1) == "none\n");
  std::istringstream lines(ranks.at(0));
  std::string link, bound, told;
  lines >> link >> bound >> told;
  CHECK(link.rfind("socket:[", 0) == 0);
  CHECK(bound == told);
  CHECK(Lines(ranks.at(0)) == 3);
}

TEST_CASE("ranks inherit their own descriptors and ours, no other's") {
  // Of the shell itself: "ls" would count what it opens.
  const std::string list = "cd /proc/$$/fd; echo *";
  const Outcome plain = RunProgram("/bin/sh", {"-c", list});
  const size_t before = Numbers(plain.out).size();
  const Outcome outcome = RunJob(5, list);
  for (const auto& [rank, text] : ByRank(outcome.out)) {
    CAPTURE(text);
    CHECK(Numbers(text).size() == before + (rank == 0 ? 2 : 1));
  }
  // Their limits too: the launcher raises its own.
  const Outcome limit = RunProgram("/bin/sh", {"-c", "ulimit -n"});
  CHECK(RunJob(1, "ulimit -n").out == "[0] " + limit.out);
}

// Random lines; some empty, some long, some of any bytes; the last perhaps
// without its end.
std::string RandomText(std::mt19937& random, size_t longest) {
  std::string text;
  const int lines = static_cast<int>(random() % 60);
  for (int i = 0; i < lines; ++i) {
    const size_t length = random() % 10 == 0  ? random() % longest
                          : random() % 4 == 0 ? 0
                                              : random() % 120;
    for (size_t k = 0; k < length; ++k) {
      const char c = static_cast<char>(random() & 0xff);
      text += c == '\n' ? '\0' : c;
    }
    text += '\n';
  }
  if (random() % 2 == 0) text += "unfinished";
  return text;
}

TEST_CASE("lines of all ranks come whole, in order and byte for byte") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    TemporaryFolder folder;
    const int size = 1 + static_cast<int>(random() % 5);
    std::map<int, std::string> expected[2];  // of stdout and stderr
    for (int i = 0; i < 2 * size; ++i) {
      const int rank = i / 2;
      std::string text = RandomText(random, i % 2 == 0 ? 200'000 : 2'000);
      if (i == 0) text += "\n" + std::string(1 << 20, 'x');
      std::ofstream(folder / fmt::format("{}.{}", rank, i % 2)) << text;
      if (!text.empty() && text.back() != '\n') text += '\n';
      if (!text.empty()) expected[i % 2][rank] = text;
    }
    // Blocks of odd sizes, so that lines arrive in pieces.
    const std::string script = fmt::format(
        "dd status=none bs={} if=$1/$SLUICE_RANK.0 & "
        "cat $1/$SLUICE_RANK.1 >&2; wait",
        1 + random() % 5000);
    const Outcome outcome = RunJob(size, script, {}, {folder.path()});
    CHECK(outcome.code == 0);
    const bool same = ByRank(outcome.out) == expected[0] &&
                      ByRank(outcome.err) == expected[1];
    CHECK(same);
  }
}

TEST_CASE("where stdout and stderr are one file, their lines do not mix") {
  // Through a pipe, which takes a long line in pieces.
  const std::string script =
      "\"$0\" -n 3 sh -c 'line=$(head -c 100000 /dev/zero | tr \"\\0\" x); "
      "for i in 1 2 3 4 5; do echo $line; echo $line >&2; done' 2>&1 | cat";
  const Outcome outcome = RunProgram("/bin/sh", {"-c", script, kLauncher});
  const std::string line = std::string(100'000, 'x') + "\n";
  const auto ranks = ByRank(outcome.out);
  REQUIRE(ranks.size() == 3);
  for (const auto& [rank, text] : ranks) {
    CHECK(text.size() == 10 * line.size());
    const bool whole = text.substr(0, line.size()) == line;
    CHECK(whole);
  }
}

TEST_CASE("what a slow reader leaves is not kept in memory") {
  // The launcher's peak, in kilobytes, after 100 MB that nobody read at first.
  const std::string script =
      "\"$0\" -n 2 --no-tag-output sh -c 'yes $(printf %0999d 0) | head -c "
      "50000000; "
      "sed -n \"s/VmHWM:\\s*\\([0-9]*\\).*/\\1/p\" /proc/$PPID/status >&2' "
      "| (sleep 1; wc -c)";
  const Outcome outcome = RunProgram("/bin/sh", {"-c", script, kLauncher});
  CHECK(outcome.out == "100000000\n");
  const std::vector<pid_t> peaks = Numbers(outcome.err);
  REQUIRE(peaks.size() == 2);
  for (const pid_t kilobytes : peaks) CHECK(kilobytes < 60'000);
}

TEST_CASE("when our reader goes, ranks learn it as without us in between") {
  const std::string script = "{ \"$0\" -n 2 yes; echo $? >&2; } | head -n 1";
  const Outcome outcome = RunProgram("/bin/sh", {"-c", script, kLauncher});
  CHECK(Contains(outcome.err, "cannot write stdout: Broken pipe"));
  CHECK(Contains(outcome.err, fmt::format("\n{}\n", 128 + SIGPIPE)));
}

TEST_CASE("untagged output and output in files are the ranks' bytes") {
  CHECK(RunJob(2, "[ $SLUICE_RANK = 1 ] && printf 'a\\nb' ; :",
               {"--no-tag-output"})
            .out == "a\nb\n");
  TemporaryFolder folder;
  const std::string dir = folder / "deep/er";
  const Outcome outcome =
      RunJob(2, "printf 'out %s' $SLUICE_RANK; printf '\\0err\\n' >&2",
             {"--output-dir", dir});
  CHECK(outcome.code == 0);
  CHECK(outcome.out == "");
  CHECK(outcome.err == "");
  for (const char* rank : {"0", "1"}) {
    CHECK(TextOf(dir + "/rank-" + rank + ".out") == "out " + std::string(rank));
    CHECK(TextOf(dir + "/rank-" + rank + ".err") == std::string("\0err\n", 5));
  }
}

TEST_CASE("a folder or file that cannot be written is one line") {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  CheckError(RunJob(2, "echo ran", {"--output-dir", folder / "file"}),
             "sluicerun", 1, "rank-0.out");
  const std::string script = "exec \"$0\" -n 2 echo text > /dev/full";
  const Outcome full = RunProgram("/bin/sh", {"-c", script, kLauncher});
  CHECK(full.code != 0);
  CHECK(Contains(full.err, "cannot write stdout: No space left"));
}

TEST_CASE("rank 0 reads our stdin, the others nothing") {
  const std::string script =
      "printf 'one\\ntwo\\n' | exec \"$0\" -n 3 sh -c 'wc -l'";
  const Outcome outcome = RunProgram("/bin/sh", {"-c", script, kLauncher});
  CHECK(ByRank(outcome.out) ==
        std::map<int, std::string>{{0, "2\n"}, {1, "0\n"}, {2, "0\n"}});
}

TEST_CASE("the first that fails ends the others and is shown last") {
  TemporaryFolder folder;
  // Rank 1 fails once the others have set their traps.
  const std::string script =
      "if [ $SLUICE_RANK = 1 ]; then "
      "  while [ ! -e $1/0 ] || [ ! -e $1/2 ]; do sleep 0.01; done; "
      "  for i in $(seq 14); do echo line $i >&2; done; printf end >&2; "
      "  exit 7; fi; "
      "trap 'echo told; echo at the end >&2; exit 9' TERM; : > $1/$SLUICE_RANK;"
      "while :; do sleep 0.01; done";
  const Outcome outcome = RunJob(3, script, {}, {folder.path()});
  CHECK(outcome.code == 7);
  CHECK(ByRank(outcome.out) ==
        std::map<int, std::string>{{0, "told\n"}, {2, "told\n"}});
  std::string report = "sluicerun: rank 1 ended with code 7; its last lines:\n";
  for (int i = 6; i <= 14; ++i) report += fmt::format("  line {}\n", i);
  report += "  end\n";
  REQUIRE(outcome.err.size() > report.size());
  CHECK(outcome.err.substr(outcome.err.size() - report.size()) == report);
}

TEST_CASE("one that does not listen to SIGTERM is killed") {
  const std::string script =
      "trap '' TERM; echo $$; "
      "[ $SLUICE_RANK = 0 ] && sleep 0.2 && kill -SEGV $$; "
      "while :; do sleep 0.01; done";
  const Outcome outcome = RunJob(3, script, {"--timeout-kill", "0.3"});
  CHECK(outcome.code == 128 + SIGSEGV);
  CHECK(outcome.err == "sluicerun: rank 0 ended by SIGSEGV\n");
  for (const auto& [rank, text] : ByRank(outcome.out)) {
    CHECK(!Runs(std::stoi(text)));
  }
}

TEST_CASE("a stopped rank is ended too; what ranks leave behind is") {
  const Outcome stopped =
      RunJob(2, "[ $SLUICE_RANK = 1 ] && kill -STOP $$; exit 4");
  CHECK(stopped.code == 4);
  const Outcome left =
      RunJob(2, "sleep 1000 & echo $!", {"--timeout-kill", "0.1"});
  CHECK(left.code == 0);
  for (const auto& [rank, text] : ByRank(left.out)) {
    AwaitTrue([&] { return !Runs(std::stoi(text)); });
  }
}

TEST_CASE("exit codes") {
  CHECK(RunJob(300, "exit 0").code == 0);
  for (const int code : {1, 2, 126, 255}) {
    CHECK(RunJob(1, fmt::format("exit {}", code)).code == code);
  }
  for (const int signal : {SIGKILL, SIGTERM, SIGABRT}) {
    CHECK(RunJob(2, fmt::format("kill -{} $$", signal)).code == 128 + signal);
  }
}

// Counts the signals that come and ends, interrupted, after a while.
constexpr char kCount[] =
    "n=0; for s in INT TERM HUP QUIT; do trap 'n=$((n+1))' $s; done; "
    "echo ready; while [ $n = 0 ]; do sleep 0.01; done; "
    "for i in $(seq 30); do sleep 0.01; done; echo $n; exit $1";

TEST_CASE("a signal is passed on to every rank once") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    for (const int code : {128 + signal, 0, 3}) {
      const Process process(kLauncher,
                            Job(3, kCount, {}, {std::to_string(code)}));
      AwaitTrue([&] { return Lines(process.out()) == 3; });
      process.Kill(signal);
      CHECK(process.Wait() == code);
      const auto ranks = ByRank(process.out());
      CHECK(ranks.size() == 3);
      for (const auto& [rank, text] : ranks) {
        // After a failure the others may be ended before they have counted.
        if (code != 3) CHECK(text == "ready\n1\n");
      }
      CHECK((process.err().find("ended with code 3") != std::string::npos) ==
            (code == 3));
    }
  }
}

TEST_CASE("after a second signal nobody may go on for ever") {
  const std::string script =
      "trap 'echo got' INT; echo ready; while :; do sleep 0.01; done";
  const Process process(kLauncher, Job(2, script, {"--timeout-kill", "0.1"}));
  AwaitTrue([&] { return Lines(process.out()) == 2; });
  process.Kill(SIGINT);
  AwaitTrue([&] { return Lines(process.out()) == 4; });
  // Two at once are one.
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  process.Kill(SIGINT);
  CHECK(process.Wait() == 128 + SIGKILL);
}

// As sessions that end may send them; ranks go on saving.
TEST_CASE("one of each signal, or two that hang up, leave ranks their time") {
  const std::string script =
      "n=0; trap 'n=$((n+1)); echo got' HUP TERM; echo ready; "
      "while [ $n -lt 2 ]; do sleep 0.01; done; sleep 1; exit $1";
  for (const auto& [second, code] : {std::pair(SIGTERM, 128 + SIGTERM),
                                     {SIGHUP, 128 + SIGHUP},
                                     {SIGTERM, 7}}) {
    const Process process(kLauncher, Job(1, script, {"--timeout-kill", "0.1"},
                                         {std::to_string(code)}));
    AwaitTrue([&] { return Lines(process.out()) == 1; });
    process.Kill(SIGHUP);
    AwaitTrue([&] { return Lines(process.out()) == 2; });
    process.Kill(second);
    CHECK(process.Wait() == code);
    CHECK(Contains(process.err(), "ended with code") == (code == 7));
  }
}

TEST_CASE("Ctrl-Z stops all and they go on after it") {
  const std::string script = "echo $$; exec sleep 1000";
  const Process process(kLauncher, Job(2, script));
  AwaitTrue([&] { return Lines(process.out()) == 2; });
  const auto ranks = ByRank(process.out());
  const auto pids = Numbers(ranks.at(0) + ranks.at(1));
  const auto stopped = [&] {  // how many
    return std::count_if(pids.begin(), pids.end(), StandsStill);
  };
  process.Kill(SIGTSTP);
  AwaitTrue([&] { return stopped() == 2 && StandsStill(process.pid()); });
  process.Kill(SIGCONT);
  AwaitTrue([&] { return stopped() == 0; });
  process.Kill(SIGTERM);
  CHECK(process.Wait() == 128 + SIGTERM);
}

TEST_CASE("killed, the launcher leaves no rank") {
  const Process process(kLauncher, Job(4, "echo $$; exec sleep 1000"));
  AwaitTrue([&] { return Lines(process.out()) == 4; });
  process.Kill(SIGKILL);
  CHECK(process.Wait() == -SIGKILL);
  for (const auto& [rank, text] : ByRank(process.out())) {
    AwaitTrue([&] { return !Runs(std::stoi(text)); });
  }
}

TEST_CASE("a program that cannot be run is one line") {
  CheckError(RunProgram(kLauncher, {"-n", "3", "no-such-program", "x"}),
             "sluicerun", 127, "cannot run 'no-such-program': No such file");
  CheckError(RunProgram(kLauncher, {"-n", "3", "/etc/passwd"}), "sluicerun",
             126, "cannot run '/etc/passwd': Permission denied");
}

TEST_CASE("wrong usage is one line and code 2") {
  const auto check = [](const Words& words, const std::string& part) {
    const Outcome outcome = RunProgram(kLauncher, words);
    CheckError(outcome, "sluicerun", 2, part);
    CHECK(Lines(outcome.err) == 1);
  };
  check({}, "--processes");
  check({"true"}, "--processes");
  check({"-n", "2"}, "no program");
  check({"-n", "2", "--"}, "no program");
  check({"-n", "0", "true"}, "not in range 1 to 4096");
  check({"-n", "4097", "true"}, "not in range 1 to 4096");
  check({"-n", "two", "true"}, "two");
  check({"-n", "010", "true"}, "wanted a decimal number, got '010'");
  check({"-n", "2", "--output-dir=", "/bin/true", "x"},
        "--output-dir= has no value");
  // Before anything is made of the word behind it.
  check({"-n2", "--hostfile=", "/bin/true", "x"}, "--hostfile= has no value");
  check({"-n", "2", "--port=", "/bin/true"}, "--port= has no value");
  check({"--pin=", "-n", "two", "true"}, "--pin= has no value");
  check({"-n", "two", "true", "--port="}, "two");
  check({"-n", "2", "--no-such-flag", "true"}, "'--no-such-flag'");
  check({"-n", "2", "--timeout-kill", "-1", "true"}, "--timeout-kill");
  check({"-n", "2", "--tag-output", "--output-dir", "/tmp", "true"},
        "--tag-output");
  check({"-n", "2", "--tls", "--allow-plaintext", "true"},
        "--tls excludes --allow-plaintext");
  const Outcome nested =
      RunJob(1, "\"$1\" -n 1 true", {"--no-tag-output"}, {kLauncher});
  CHECK(nested.code == 2);
  CHECK(Contains(nested.err, "sluicerun: SLUICE_RANK is set"));
}

TEST_CASE("what follows the program is its own") {
  const Words arguments = {"--pin", "-n",     "7",   "--",
                           "--x=",  "--help", "a b", ""};
  std::string expected;
  for (const std::string& word : arguments) expected += "[0] " + word + "\n";
  const std::string script = "printf '%s\\n' \"$@\"";
  CHECK(RunJob(1, script, {}, arguments).out == expected);
  CHECK(RunJob(1, script, {"--"}, arguments).out == expected);
}

TEST_CASE("a dry run prints lines that a shell would run alike") {
  TemporaryFolder folder;
  const Words arguments = {"it's",  "a b", "",         "$HOME",
                           "--x=1", "\\",  "new\nline"};
  const std::string script = "printf '<%s>' $SLUICE_RANK/$SLUICE_SIZE \"$@\"";
  const Outcome dry = RunJob(2, script, {"--dry-run"}, arguments);
  CHECK(dry.code == 0);
  CHECK(dry.out.find("TOKEN") == std::string::npos);
  const Outcome shell = RunProgram("/bin/sh", {"-c", dry.out});
  const std::string rest = "<it's><a b><><$HOME><--x=1><\\><new\nline>";
  CHECK(shell.out == "<0/2>" + rest + "<1/2>" + rest);
  // What processes are told, too, of which this is the user's.
  const std::string name = "it's a job; echo $HOME [0-9] *";
  const Outcome named =
      RunProgram("/usr/bin/env", Joined({"SLUICE_JOB=" + name, kLauncher},
                                        Job(1, "printf '<%s>' \"$SLUICE_JOB\"",
                                            {"--ps", "1", "--dry-run"})));
  CAPTURE(named.out);
  CHECK(RunProgram("/bin/sh", {"-c", named.out}).out ==
        "<" + name + "><" + name + ">");
  RunJob(2, ": > $1", {"--dry-run"}, {folder / "ran"});
  CHECK(!std::filesystem::exists(folder / "ran"));
}

TEST_CASE("--pin shares out the CPUs that we may use") {
  // Each on its line, whichever ranges the kernel makes of them.
  const std::string list =
      "sed -n 's/^Cpus_allowed_list:\\s*//p' /proc/self/status | tr ',-' '\\n "
      "' "
      "| while read a b; do seq $a ${b:-$a}; done";
  const auto allowed = Numbers(RunProgram("/bin/sh", {"-c", list}).out);
  for (const size_t size :
       {size_t{1}, size_t{2}, allowed.size(), 2 * allowed.size() + 1}) {
    std::map<int, size_t> users;
    for (const auto& [rank, text] :
         ByRank(RunJob(static_cast<int>(size), list, {"--pin"}).out)) {
      const size_t share = allowed.size() / size, cpus = Numbers(text).size();
      CHECK(cpus >= std::max<size_t>(share, 1));
      CHECK(cpus <= share + 1);
      for (const int cpu : Numbers(text)) ++users[cpu];
    }
    for (const int cpu : allowed) {
      CHECK(users[cpu] >= std::max<size_t>(size / allowed.size(), 1));
      CHECK(users[cpu] <= size / allowed.size() + 1);
    }
  }
  // Without it all may use all.
  CHECK(Numbers(ByRank(RunJob(2, list).out).at(1)) == allowed);
}

}  // namespace
}  // namespace sluice
