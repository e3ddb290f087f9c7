// Jobs that something else starts: what sluicerun makes for Slurm and
// Kubernetes, with stand-ins for both that do as their documentation says.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "dist/net/tls.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
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
using testing::kLauncher;
using testing::NewestTensors;
using testing::Outcome;
using testing::Process;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::Words;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Words Training(const std::string& log_dir) {
  return Words{testing::kMnist} +
         testing::OnMnist("train", {"--epochs", "1", "--threads", "1",
                                    "--log-dir", log_dir});
}

// By this machine's launcher.
testing::TensorsByName Launched() {
  const TemporaryFolder folder;
  const Outcome outcome =
      RunProgram(kLauncher, Words{"-n", "2"} + Training(folder / "log"));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return NewestTensors(folder / "log");
}

void Write(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

TEST_CASE("certificates are a new folder's, and each key its owner's") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const Words make = {"-n", "2", "--make-certificates", folder / "made"};
  CHECK(RunProgram(kLauncher, make).code == 0);
  for (const char* name : {"ca.pem", "worker-0.pem", "worker-1.pem"}) {
    const Outcome verified = RunProgram(
        "/usr/bin/openssl",
        {"verify", "-CAfile", folder / "made/ca.pem", folder / "made/" + name});
    CHECK_MESSAGE(verified.code == 0, verified.err);
  }
  for (const char* name : {"worker-0.key", "worker-1.key"}) {
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
      kLauncher, Words{"-n", "2", "--emit", "slurm", "--job-name", "m-1"} +
                     Training(folder / "log"));
  REQUIRE(script.code == 0);
  CHECK(Contains(script.out, "#SBATCH --ntasks=2\n"));
  const Outcome ran = Sbatch(folder, script.out);
  CAPTURE(ran.err);
  CHECK(ran.code == 0);
  CheckSameTensors(NewestTensors(folder / "log"), Launched());
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

// What Kubernetes makes of a variable's value or a command's word.
std::string Expanded(const std::string& text, const json& known) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "$$") == 0) {
      out += text[i++];
    } else if (const size_t end = text.find(')', i);
               text.compare(i, 2, "$(") == 0 && end != std::string::npos &&
               known.contains(text.substr(i + 2, end - i - 2))) {
      out += known[text.substr(i + 2, end - i - 2)].get<std::string>();
      i = end;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The pod of an index as a process of this machine, behind the words `inside`;
// the Secret is in `secret`.
std::unique_ptr<Process> Pod(const json& job, int index,
                             const std::string& secret, const Words& inside) {
  const json& pod = job["spec"]["template"]["spec"];
  const json& container = pod["containers"][0];
  json known;
  Words words = inside;
  words.push_back("/usr/bin/env");
  for (const json& variable : container["env"]) {
    std::string value;
    if (variable.contains("value")) {
      value = Expanded(variable["value"], known);
    } else if (variable["name"] == "INDEX") {
      CHECK(Contains(variable["valueFrom"]["fieldRef"]["fieldPath"],
                     "job-completion-index"));
      value = std::to_string(index);
    } else {
      value = "some-uid";
    }
    if (variable["name"] == "SLUICE_CERTIFICATES") {
      const json& mount = container["volumeMounts"][0];
      CHECK(mount["mountPath"] == value);
      CHECK(mount["name"] == pod["volumes"][0]["name"]);
      value = secret;
    }
    known[variable["name"]] = value;
    words.push_back(variable["name"].get<std::string>() + "=" + value);
  }
  for (const json& word : container["command"]) {
    words.push_back(Expanded(word, known));
  }
  return std::make_unique<Process>(words[0],
                                   Words(words.begin() + 1, words.end()));
}

// Pods have names from when they have addresses, which is after the first of
// them looks for the others.
TEST_CASE("a manifest for Kubernetes trains what the launcher's job does") {
  if (!dist::HasTls()) return;
  const testing::NetHosts hosts(217, 2);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  const TemporaryFolder folder;
  const Outcome printed = RunProgram(
      kLauncher, Words{"-n", "2", "--emit", "kubernetes", "--image", "sluice",
                       "--claim", "data:/data"} +
                     Training(folder / "log") + Words{"--join-timeout", "30"});
  CAPTURE(printed.err);
  REQUIRE(printed.code == 0);
  json by_kind;
  const json list = json::parse(printed.out);
  for (const json& item : list["items"]) {
    by_kind[item["kind"].get<std::string>()] = item;
  }
  const std::string secret = folder / "secret";
  fs::create_directory(secret);
  for (const auto& [name, text] : by_kind["Secret"]["stringData"].items()) {
    Write(fmt::format("{}/{}", secret, name), text, 0400);
  }
  const json& job = by_kind["Job"];
  REQUIRE(by_kind.size() == 3);
  CHECK(job["spec"]["completions"] == 2);
  CHECK(job["spec"]["parallelism"] == 2);
  // The names of pods are the service's.
  const std::string service = by_kind["Service"]["metadata"]["name"];
  CHECK(job["spec"]["template"]["spec"]["subdomain"] == service);
  const std::string names = "/etc/netns/" + hosts.NameOf(1) + "/hosts";
  fs::create_directories(fs::path(names).parent_path());
  fs::create_directories("/etc/netns/" + hosts.NameOf(0));
  Write("/etc/netns/" + hosts.NameOf(0) + "/hosts",
        fmt::format("{} mnist-0.mnist\n", hosts.AddressOf(0)), 0644);
  Write(names, fmt::format("{} mnist-1.mnist\n", hosts.AddressOf(1)), 0644);
  const auto second = Pod(job, 1, secret, hosts.Inside(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  std::ofstream(names, std::ios::app)
      << hosts.AddressOf(0) << " mnist-0.mnist\n";
  const auto first = Pod(job, 0, secret, hosts.Inside(0));
  for (const auto& pod : {first.get(), second.get()}) {
    const int code = pod->Wait();
    CAPTURE(pod->err());
    CHECK(code == 0);
  }
  fs::remove_all("/etc/netns/" + hosts.NameOf(0));
  fs::remove_all("/etc/netns/" + hosts.NameOf(1));
  CheckSameTensors(NewestTensors(folder / "log"), Launched());
}

TEST_CASE("what Kubernetes would make of a word is kept from it") {
  const Outcome printed = RunProgram(
      kLauncher, {"-n", "1", "--allow-plaintext", "--emit", "kubernetes",
                  "--image", "i", "--job-name", "x", "p", "$(INDEX)", "$$"});
  REQUIRE(printed.code == 0);
  const json list = json::parse(printed.out);
  for (const json& item : list["items"]) {
    CHECK(item["kind"] != "Secret");
    if (item["kind"] != "Job") continue;
    const json& command =
        item["spec"]["template"]["spec"]["containers"][0]["command"];
    const json known = {{"INDEX", "7"}};
    CHECK(Expanded(command[1], known) == "$(INDEX)");
    CHECK(Expanded(command[2], known) == "$$");
  }
}

TEST_CASE("a job may fail so often that Kubernetes cannot count it") {
  const Outcome printed = RunProgram(
      kLauncher, {"-n", "4096", "--allow-plaintext", "--emit", "kubernetes",
                  "--image", "i", "--max-restarts", "1000000", "p"});
  REQUIRE(printed.code == 0);
  const json list = json::parse(printed.out);
  CHECK(list["items"].back()["spec"]["backoffLimit"] == 2147483647);
}

TEST_CASE("what others would not take is one line") {
  const Words emit = {"-n", "12", "--emit", "kubernetes", "--image", "i"};
  for (const auto& [words, part] :
       {std::pair(emit + Words{"./My_Program"}, "is no name for Kubernetes"),
        std::pair(emit + Words{"--job-name", std::string(61, 'a'), "p"},
                  "at most 60"),
        std::pair(emit + Words{"--claim", "data", "p"}, "wanted NAME:/PATH"),
        std::pair(Words{"-n", "2", "--emit", "kubernetes", "p"},
                  "wants --image"),
        std::pair(Words{"-n", "2", "--emit", "slurm", "--job-name", "a b", "p"},
                  "is more than letters")}) {
    CheckError(RunProgram(kLauncher, words), "sluicerun", 1, part);
  }
  CheckError(RunProgram(kLauncher, {"-n", "2", "--image", "i", "p"}),
             "sluicerun", 2, "--emit");
  CheckError(RunProgram(kLauncher, {"--make-certificates", "d"}), "sluicerun",
             2, "--processes");
}

}  // namespace
}  // namespace sluice
