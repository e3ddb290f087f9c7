// In ssh's place: runs on this host what ssh would run on another, in ways that
// a test wants.
#ifndef SLUICE_TESTS_SUPPORT_STAND_IN_SSH_H_
#define SLUICE_TESTS_SUPPORT_STAND_IN_SSH_H_

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/launched.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

class StandInSsh {
 public:
  // The shell's commands that run it: "$1" is the host, "$2" what is to run
  // there, "$at" this stand-in's folder.
  explicit StandInSsh(const std::string& commands) {
    std::ofstream(at("ssh")) << "#!/bin/sh\nat=" << folder_.path()
                             << "\nwhile [ $# -gt 2 ]; do shift; done\n"
                             << commands << "\n";
    chmod(at("ssh").c_str(), 0700);
  }
  std::string at(const std::string& name) const { return folder_ / name; }
  // For the launcher: a job of a rank on each of two hosts.
  Words Options() const {
    return {"--ssh", at("ssh"), "--allow-plaintext", "-H",
            "127.0.0.1,127.0.0.2"};
  }

 private:
  const TemporaryFolder folder_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STAND_IN_SSH_H_
