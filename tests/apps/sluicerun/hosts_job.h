// Jobs of `struck` (struck_job.h) over hosts, network name spaces with an sshd
// in each.
#ifndef SLUICE_TESTS_APPS_SLUICERUN_HOSTS_JOB_H_
#define SLUICE_TESTS_APPS_SLUICERUN_HOSTS_JOB_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/net_hosts.h"
#include "tests/support/required.h"
#include "tests/support/sshd.h"

namespace sluice::testing {

class HostsJob {
 public:
  static constexpr int kMostHosts = 4;

  // A rank has a host to itself; each host has a server where there are some,
  // the last one nothing else. `net` as NetHosts has it.
  HostsJob(int net, const StruckJob& job) : job_(job), hosts_(net, kMostHosts) {
    const int count = job.size + (job.servers > 0 ? 1 : 0);
    std::string list;
    for (int host = 0; hosts_.made() && host < count; ++host) {
      const std::string at = hosts_.AddressOf(host);
      sshds_.push_back(host == 0 ? Sshd::Start({at}, hosts_.Inside(0))
                                 : sshds_[0]->Twin(at, hosts_.Inside(host)));
      if (sshds_.back() == nullptr) break;
      list += (host == 0 ? "" : ",") + at;
    }
    made_ = !sshds_.empty() && sshds_.back() != nullptr;
    if (!made_) {
      SkipForHosts("no network name spaces to be made, or no sshd in them");
      return;
    }
    options_ = Joined(sshds_[0]->Options(), {"-H", list});
  }

  bool made() const { return made_; }
  const NetHosts& hosts() const { return hosts_; }
  int count() const { return static_cast<int>(sshds_.size()); }

  // The launcher's words, as StruckJob::Command.
  Words Command(const std::string& log_dir, const std::string& marks) const {
    return Joined(options_, job_.Command(log_dir, marks));
  }

 private:
  const StruckJob& job_;
  const NetHosts hosts_;
  std::vector<std::unique_ptr<Sshd>> sshds_;
  Words options_;
  bool made_ = false;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_APPS_SLUICERUN_HOSTS_JOB_H_
