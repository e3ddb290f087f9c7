// An ssh server of the test's own, on the loopback or anywhere else: keys,
// configuration and port are nobody else's.
#ifndef SLUICE_TESTS_SUPPORT_SSHD_H_
#define SLUICE_TESTS_SUPPORT_SSHD_H_

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/required.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

class Sshd {
 public:
  // `inside` are the words before the server's own: ip netns exec NAME. Null
  // where there is no server (openssh-server) or it does not start: the case
  // says so and is skipped.
  static std::unique_ptr<Sshd> Start(
      const std::vector<std::string>& addresses,
      const std::vector<std::string>& inside = {}) {
    if (access(kServer, X_OK) != 0) {
      SkipForHosts(std::string("there is no ") + kServer);
      return nullptr;
    }
    if (geteuid() == 0) mkdir("/run/sshd", 0755);  // it insists
    for (int port = 20'000 + getpid() % 10'000, i = 0; i < 5; ++i, ++port) {
      std::unique_ptr<Sshd> sshd(
          new Sshd(port, std::make_shared<TemporaryFolder>()));
      if (sshd->MakeKeys() && sshd->Run(addresses, inside)) return sshd;
    }
    SkipForHosts("sshd does not start");
    return nullptr;
  }
  // Another one of the same keys and port; null where it does not start.
  std::unique_ptr<Sshd> Twin(const std::string& address,
                             const std::vector<std::string>& inside) const {
    std::unique_ptr<Sshd> sshd(new Sshd(port_, folder_));
    if (!sshd->Run({address}, inside)) return nullptr;
    return sshd;
  }
  ~Sshd() {
    if (server_ != nullptr) {
      server_->Kill(SIGTERM);
      (void)server_->Wait();
    }
  }
  Sshd(const Sshd&) = delete;
  Sshd& operator=(const Sshd&) = delete;

  int port() const { return port_; }
  // For the launcher: how to get in.
  std::vector<std::string> Options() const {
    return {"--ssh-port", std::to_string(port_), "--ssh",
            "ssh -F " + folder_->path() + "/config"};
  }

 private:
  static constexpr const char* kServer = "/usr/sbin/sshd";

  Sshd(int port, std::shared_ptr<TemporaryFolder> folder)
      : port_(port), folder_(std::move(folder)) {}

  bool MakeKeys() const {
    const std::string at = folder_->path();
    for (const char* key : {"host", "key"}) {
      const std::string make =
          fmt::format("ssh-keygen -q -t ed25519 -N '' -f '{}/{}'", at, key);
      if (std::system(make.c_str()) != 0) return false;
    }
    return true;
  }

  bool Run(const std::vector<std::string>& addresses,
           std::vector<std::string> words) {
    const std::string at = folder_->path();
    const std::string name = at + "/sshd_config" + addresses[0];
    std::ofstream config(name);
    config << fmt::format(
        "Port {}\nHostKey {}/host\nAuthorizedKeysFile {}/key.pub\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
        "MaxStartups 100\n",
        port_, at, at);
    for (const std::string& address : addresses) {
      config << "ListenAddress " << address << "\n";
    }
    config.close();
    std::ofstream(at + "/config") << fmt::format(
        "IdentityFile {}/key\nStrictHostKeyChecking no\n"
        "UserKnownHostsFile {}/known\nLogLevel ERROR\n",
        at, at);
    words.insert(words.end(), {kServer, "-D", "-e", "-f", name});
    const std::string program = words[0];
    words.erase(words.begin());
    server_ = std::make_unique<Process>(program, words);
    for (int i = 0; i < 500; ++i) {
      const std::string said = server_->err();
      if (Lines(said) >= static_cast<int64_t>(addresses.size()) &&
          said.find("listening") != std::string::npos) {
        return true;
      }
      if (said.find("Cannot bind") != std::string::npos ||
          said.find("rror") != std::string::npos) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  const int port_;
  const std::shared_ptr<TemporaryFolder> folder_;
  std::unique_ptr<Process> server_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SSHD_H_
