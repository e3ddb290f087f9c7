// Hosts at a switch: network name spaces, which root may make where the system
// lets it.
#ifndef SLUICE_TESTS_SUPPORT_NET_HOSTS_H_
#define SLUICE_TESTS_SUPPORT_NET_HOSTS_H_

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace sluice::testing {

class NetHosts {
 public:
  // Tests that may run at the same time have different `net`s: 10.NET.0.0/24,
  // in which this machine is 10.NET.0.1 and host i from 0 is 10.NET.0.(i + 2).
  // Of one `net` another process's hosts are waited for until they are gone.
  NetHosts(int net, int count)
      : net_(net),
        count_(count),
        lock_(open(fmt::format("/run/sluice-net-{}.lock", net).c_str(),
                   O_CREAT | O_RDWR | O_CLOEXEC, 0600)),
        locked_(flock(lock_, LOCK_EX) == 0) {
    if (!locked_) return;
    Remove();
    made_ =
        Run(fmt::format("ip link add slbr{0} type bridge && ip addr add "
                        "10.{0}.0.1/24 dev slbr{0} && ip link set slbr{0} "
                        "up",
                        net));
    for (int host = 0; made_ && host < count; ++host) made_ = Add(host);
  }
  ~NetHosts() {
    if (locked_) Remove();
    flock(lock_, LOCK_UN);  // processes that were forked may have it open yet
    close(lock_);
  }
  NetHosts(const NetHosts&) = delete;
  NetHosts& operator=(const NetHosts&) = delete;

  bool made() const { return made_; }
  std::string AddressOf(int host) const {
    return fmt::format("10.{}.0.{}", net_, host + 2);
  }
  // As `ip netns` knows it.
  std::string NameOf(int host) const {
    return fmt::format("slns{}x{}", net_, host);
  }
  // The words before those of a program that is to run there.
  std::vector<std::string> Inside(int host) const {
    return {"/usr/sbin/ip", "netns", "exec", NameOf(host)};
  }
  // This process is there from now on, its sockets that is.
  bool Enter(int host) const {
    const int name =
        open(("/var/run/netns/" + NameOf(host)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = setns(name, CLONE_NEWNET) == 0;
    close(name);
    return entered;
  }
  // From all others.
  bool CutOff(int host) const {
    return Run(fmt::format("ip link set slv{}x{} down", net_, host));
  }
  // With all again.
  bool Connect(int host) const {
    return Run(fmt::format("ip link set slv{}x{} up", net_, host));
  }
  // What goes to it and what comes from it from now on, to `kilobits` a second
  // each way; what waits longer than a second is dropped (tc-tbf).
  bool Limit(int host, int kilobits) const {
    const std::string rule =
        fmt::format("root tbf rate {}kbit burst 8kb latency 1s", kilobits);
    return Run(fmt::format("tc qdisc replace dev slv{}x{} {}", net_, host,
                           rule)) &&
           Run(fmt::format("tc -n {} qdisc replace dev eth0 {}", NameOf(host),
                           rule));
  }
  // Of two, from each other alone: both ways lead nowhere.
  bool CutBetween(int a, int b) const {
    const auto lose = [&](int from, int to) {
      return Run(fmt::format("ip -n {} route add blackhole {}", NameOf(from),
                             AddressOf(to)));
    };
    return lose(a, b) && lose(b, a);
  }

 private:
  static bool Run(const std::string& command) {
    return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
  }
  bool Add(int host) const {
    return Run(fmt::format(
        "ip netns add {0} && ip link add slv{1}x{2} type veth peer name eth0 "
        "netns {0} && ip link set slv{1}x{2} master slbr{1} up && ip -n {0} "
        "addr add {3}/24 dev eth0 && ip -n {0} link set eth0 up && ip -n {0} "
        "link set lo up",
        NameOf(host), net_, host, AddressOf(host)));
  }
  void Remove() const {
    for (int host = 0; host < count_; ++host) {
      Run("ip netns del " + NameOf(host));
      Run(fmt::format("ip link del slv{}x{}", net_, host));
    }
    Run(fmt::format("ip link del slbr{}", net_));
  }

  const int net_, count_;
  const int lock_;
  const bool locked_;
  bool made_ = false;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_NET_HOSTS_H_
