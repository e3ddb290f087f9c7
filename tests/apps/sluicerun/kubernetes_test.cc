// Jobs for Kubernetes: what sluicerun makes for it, with a stand-in that does
// as its documentation says.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/deployed.h"
#include "tests/apps/sluicerun/struck_job.h"
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
using testing::CheckSameTensors;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Outcome;
using testing::Process;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TrainedByLauncher;
using testing::Training;
using testing::Words;
using testing::Write;

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
    if (variable["name"] == "SLUICE_CERTIFICATES" ||
        variable["name"] == "SLUICE_TOKEN_FILE") {
      const json& mount = container["volumeMounts"][0];
      const auto path = mount["mountPath"].get<std::string>();
      REQUIRE(value.starts_with(path));
      CHECK(mount["name"] == pod["volumes"][0]["name"]);
      CHECK(pod["volumes"][0]["secret"]["defaultMode"] == 0400);
      value = secret + value.substr(path.size());
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

void WriteSecret(const json& secret, const std::string& folder) {
  fs::create_directory(folder);
  for (const auto& [name, text] : secret["stringData"].items()) {
    Write(fmt::format("{}/{}", folder, name), text, 0400);
  }
}

// Whom a name space knows by name, while this is there.
class KnownNames {
 public:
  explicit KnownNames(const std::string& space)
      : folder_("/etc/netns/" + space) {
    fs::create_directories(folder_);
    Write(folder_ + "/hosts", "", 0644);
  }
  ~KnownNames() { fs::remove_all(folder_); }
  KnownNames(const KnownNames&) = delete;
  KnownNames& operator=(const KnownNames&) = delete;
  void Add(const std::string& address, const std::string& name) const {
    std::ofstream(folder_ + "/hosts", std::ios::app)
        << address << " " << name << "\n";
  }

 private:
  const std::string folder_;
};

TEST_CASE("a manifest for Kubernetes asks for what each process is to have") {
  const Words job = {
      "-n",     "2",          "--ps",    "1",     "--allow-plaintext",
      "--emit", "kubernetes", "--image", "sluice"};
  const auto resources = [&](const Words& more) {
    const Outcome printed =
        RunProgram(kLauncher, Joined(Joined(job, more), {"mnist", "train"}));
    REQUIRE(printed.code == 0);
    json by_name;
    const json list = json::parse(printed.out);
    for (const json& item : list["items"]) {
      if (item["kind"] != "Job") continue;
      by_name[item["metadata"]["name"].get<std::string>()] =
          item["spec"]["template"]["spec"]["containers"][0]["resources"];
    }
    return by_name;
  };
  json whole = resources({"--cpus", "4", "--memory", "8", "--gpus", "1"});
  const json requests = {{"cpu", "4"}, {"memory", "8Gi"}};
  CHECK(whole["mnist"] ==
        json{{"requests", requests},
             {"limits", {{"memory", "8Gi"}, {"nvidia.com/gpu", "1"}}}});
  CHECK(whole["mnist-ps"] ==
        json{{"requests", requests}, {"limits", {{"memory", "8Gi"}}}});
  CHECK(resources({})["mnist"] == json::object());
}

// What a job's processes may know each other by: certificates, or a token.
std::vector<Words> Securities() {
  std::vector<Words> all = {Words{"--allow-plaintext"}};
  if (dist::HasTls()) all.emplace_back();
  return all;
}

void TrainInTwoPods(const testing::NetHosts& hosts, const Words& security) {
  const TemporaryFolder folder;
  const Words emit = {"-n",      "2",      "--emit",  "kubernetes",
                      "--image", "sluice", "--claim", "data:/data"};
  const Outcome printed = RunProgram(
      kLauncher,
      Joined(Joined(Joined(security, emit), Training(folder / "log")),
             {"--join-timeout", "30"}));
  CAPTURE(printed.err);
  REQUIRE(printed.code == 0);
  json by_kind;
  const json list = json::parse(printed.out);
  for (const json& item : list["items"]) {
    by_kind[item["kind"].get<std::string>()] = item;
  }
  const std::string secret = folder / "secret";
  WriteSecret(by_kind["Secret"], secret);
  const json& job = by_kind["Job"];
  REQUIRE(by_kind.size() == 3);
  CHECK(job["spec"]["completions"] == 2);
  CHECK(job["spec"]["parallelism"] == 2);
  // The names of pods are the service's.
  const std::string service = by_kind["Service"]["metadata"]["name"];
  CHECK(job["spec"]["template"]["spec"]["subdomain"] == service);
  const KnownNames of_first(hosts.NameOf(0)), of_second(hosts.NameOf(1));
  of_first.Add(hosts.AddressOf(0), "mnist-0.mnist");
  of_second.Add(hosts.AddressOf(1), "mnist-1.mnist");
  const auto second = Pod(job, 1, secret, hosts.Inside(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  of_second.Add(hosts.AddressOf(0), "mnist-0.mnist");
  const auto first = Pod(job, 0, secret, hosts.Inside(0));
  for (const auto& pod : {first.get(), second.get()}) {
    const int code = pod->Wait();
    CAPTURE(pod->err());
    CHECK(code == 0);
  }
  CheckSameTensors(NewestTensors(folder / "log"), TrainedByLauncher());
}

// Pods have names from when they have addresses, which is after the first of
// them looks for the others.
TEST_CASE("a manifest for Kubernetes trains what the launcher's job does") {
  const testing::NetHosts hosts(217, 2);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  for (const Words& security : Securities()) {
    CAPTURE(security.size());
    TrainInTwoPods(hosts, security);
  }
}

TEST_CASE("parameter servers are a Job of their own, which workers know") {
  if (!dist::HasTls()) return;
  const Outcome printed = RunProgram(
      kLauncher, {"-n", "3", "--ps", "2", "--emit", "kubernetes", "--image",
                  "i", "--max-restarts", "4", "--port", "5000", "p", "a"});
  CAPTURE(printed.err);
  REQUIRE(printed.code == 0);
  const json items = json::parse(printed.out)["items"];
  REQUIRE(items.size() == 4);
  CHECK(items[0]["stringData"].size() == 1 + 2 * (3 + 2));
  CHECK(items[0]["stringData"].contains("ps-1.key"));
  const json cluster = {{"worker", {"p-0.p:5000", "p-1.p:5000", "p-2.p:5000"}},
                        {"ps", {"p-ps-0.p:5000", "p-ps-1.p:5000"}}};
  const auto check = [&](const json& job, const std::string& name,
                         const std::string& role, int count) {
    CAPTURE(name);
    CHECK(job["metadata"]["name"] == name);
    const json& spec = job["spec"];
    CHECK(spec["completionMode"] == "Indexed");
    CHECK(spec["completions"] == count);
    CHECK(spec["parallelism"] == count);
    CHECK(spec["backoffLimit"] == 4 * count);
    const json& pod = spec["template"];
    CHECK(pod["metadata"]["labels"]["app"] == "p");
    CHECK(pod["spec"]["subdomain"] == "p");
    const json& container = pod["spec"]["containers"][0];
    CHECK(container["command"] == json::array({"p", "a"}));
    for (const json& variable : container["env"]) {
      if (variable["name"] != "SLUICE_CONFIG") continue;
      const json config =
          json::parse(Expanded(variable["value"], {{"INDEX", "1"}}));
      CHECK(config["cluster"] == cluster);
      CHECK(config["task"] == json::object({{"type", role}, {"index", 1}}));
      return;
    }
    FAIL("no SLUICE_CONFIG");
  };
  check(items[2], "p", "worker", 3);
  check(items[3], "p-ps", "ps", 2);
}

void TrainInFourPods(const testing::NetHosts& hosts, const Words& security) {
  const TemporaryFolder folder;
  const Words servers = {"--ps", "2"}, strategy = {"--strategy", "ps"};
  const Words job = {"-n", "2", "--emit", "kubernetes", "--image", "sluice"};
  const Outcome printed = RunProgram(
      kLauncher, Joined(Joined(Joined(Joined(servers, security), job),
                               Training(folder / "log")),
                        strategy));
  CAPTURE(printed.err);
  REQUIRE(printed.code == 0);
  const json items = json::parse(printed.out)["items"];
  const std::string secret = folder / "secret";
  WriteSecret(items[0], secret);
  const char* const names[] = {"mnist-0", "mnist-1", "mnist-ps-0",
                               "mnist-ps-1"};
  std::vector<std::unique_ptr<KnownNames>> known;
  for (int host = 0; host < 4; ++host) {
    known.push_back(std::make_unique<KnownNames>(hosts.NameOf(host)));
    for (int other = 0; other < 4; ++other) {
      known.back()->Add(hosts.AddressOf(other),
                        std::string(names[other]) + ".mnist");
    }
  }
  // Whoever is first waits for the others.
  std::vector<std::unique_ptr<Process>> pods;
  for (const int host : {1, 3, 0, 2}) {
    pods.push_back(
        Pod(items[2 + host / 2], host % 2, secret, hosts.Inside(host)));
  }
  for (const auto& pod : pods) {
    const int code = testing::CodeOf(*pod);
    CAPTURE(pod->err());
    CHECK(code == 0);
  }
  CheckSameTensors(NewestTensors(folder / "log"),
                   TrainedByLauncher(servers, strategy));
}

TEST_CASE("pods with parameter servers train what the launcher's job does") {
  const testing::NetHosts hosts(229, 4);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  for (const Words& security : Securities()) {
    CAPTURE(security.size());
    TrainInFourPods(hosts, security);
  }
}

// Also where there are no name spaces to be made.
TEST_CASE("a token is the Secret's, and every pod's, where there are several") {
  for (const Words& several :
       {Words{"-n", "2"}, Words{"-n", "1", "--ps", "1"}}) {
    const Outcome printed = RunProgram(
        kLauncher, Joined(several, {"--allow-plaintext", "--emit", "kubernetes",
                                    "--image", "i", "p"}));
    CAPTURE(printed.err);
    REQUIRE(printed.code == 0);
    const json items = json::parse(printed.out)["items"];
    REQUIRE(items[0]["kind"] == "Secret");
    const json& data = items[0]["stringData"];
    REQUIRE(data.size() == 1);
    CHECK(data["token"].get<std::string>().size() == 64);
    for (size_t i = 2; i < items.size(); ++i) {
      const json& container =
          items[i]["spec"]["template"]["spec"]["containers"][0];
      json told;
      for (const json& variable : container["env"]) {
        told[variable["name"].get<std::string>()] =
            variable.value("value", std::string());
      }
      CHECK(told["SLUICE_ALLOW_PLAINTEXT"] == "1");
      const std::string path = container["volumeMounts"][0]["mountPath"];
      CHECK(told["SLUICE_TOKEN_FILE"] == path + "/token");
    }
  }
}

TEST_CASE("the user's certificates are the Secret's, and Slurm's processes'") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const std::string made = folder / "made";
  REQUIRE(
      RunProgram(kLauncher, {"-n", "2", "--make-certificates", made}).code ==
      0);
  const Words emit = {"--certificates", made, "--image", "i", "--emit"};
  const Outcome printed =
      RunProgram(kLauncher, Joined(emit, {"kubernetes", "-n", "2", "p"}));
  CAPTURE(printed.err);
  REQUIRE(printed.code == 0);
  const json data = json::parse(printed.out)["items"][0]["stringData"];
  CHECK(data.size() == 5);
  for (const auto& [name, text] : data.items()) {
    CHECK(text == testing::TextOf(made + "/" + name));
  }
  testing::CheckError(
      RunProgram(kLauncher, Joined(emit, {"kubernetes", "-n", "3", "p"})),
      "sluicerun", 1, "worker-2.pem");
  const Outcome script =
      RunProgram(kLauncher, Joined(emit, {"slurm", "-n", "2", "p"}));
  CHECK(Contains(script.out, "export SLUICE_CERTIFICATES=" + made + "\n"));
  CHECK(script.out.find("--make-certificates") == std::string::npos);
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

}  // namespace
}  // namespace sluice
