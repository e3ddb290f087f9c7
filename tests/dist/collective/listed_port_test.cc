// A process has one port for all that it listens for, one group after another,
// so that a firewall may let that pass and nothing else.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/peers.h"
#include "dist/collective/group.h"
#include "dist/net/address.h"
#include "dist/net/socket.h"
#include "graph/builder.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/config_jobs.h"
#include "tests/support/elastic_job.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

constexpr int kRanks = 4;

// The ports at which this process listens, and the pairs of its connections'
// ends: those of the job alone, whose ranks are threads of it.
struct Ports {
  struct Ends {
    int own, other;
  };
  std::set<int> listens;
  std::vector<Ends> connections;

  Ports() {
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      const int descriptor = std::stoi(entry.path().filename().string());
      const auto own = LocalAddressOf(descriptor);
      if (!own.ok() || !own->is_internet()) continue;
      const auto other = PeerAddressOf(descriptor);
      int accepts = 0;
      socklen_t size = sizeof accepts;
      getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size);
      if (accepts != 0) listens.insert(PortOf(*own));
      if (other.ok()) connections.push_back({PortOf(*own), PortOf(*other)});
    }
  }
  void CheckListed(const std::vector<int>& ports) const {
    const std::set<int> listed(ports.begin(), ports.end());
    CHECK(!connections.empty());
    for (const Ends& ends : connections) {
      CAPTURE(ends.own);
      CAPTURE(ends.other);
      CHECK((listed.contains(ends.own) || listed.contains(ends.other)));
    }
  }
  bool Has(int port) const {
    return std::any_of(connections.begin(), connections.end(),
                       [&](const Ends& ends) { return ends.own == port; });
  }
};

// Of a job that has a list of addresses.
std::vector<LaunchInfo> Listed(const std::vector<int>& ports, bool encrypted) {
  std::vector<LaunchInfo> infos =
      encrypted ? LaunchEncrypted(kRanks) : Launch(kRanks);
  close(infos[0].listen_fd);
  infos[0].listen_fd = -1;
  for (LaunchInfo& info : infos) {
    info.port = ports[0];
    info.own_port = ports[At(info.rank)];
  }
  return infos;
}

// What the ranks of a job say of ports.
class Notes {
 public:
  GroupOptions Options() {
    GroupOptions options;
    options.transport = Transport::kTcp;
    options.note = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (line.find("port ") != std::string_view::npos) {
        lines_.emplace_back(line);
      }
    };
    return options;
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Peers that each add 1 to what comes from the one before.
class Adding {
 public:
  Adding(const LaunchInfo& info, Group& group) {
    PeersOptions peers;
    peers.task.name = Name(group.rank());
    peers.task.token = info.token;
    peers.task.credentials = info.credentials;
    peers.task.transport = Transport::kTcp;
    peers.host = group.address();
    peers.port = info.own_port;
    SessionOptions options;
    options.devices.clear();
    for (int rank = 0; rank < kRanks; ++rank) {
      options.devices.push_back(Name(rank) + "/cpu:0");
    }
    options.task = peers.task.name;
    options.cluster = MakePeers(peers, group).ValueOrThrow();
    x_ = graph_.Placeholder("x", DType::kFloat32, {8});
    y_ = x_;
    for (const std::string& device : options.devices) {
      const DeviceScope there(graph_, device);
      y_ = y_ + 1.0f;
    }
    session_ = std::make_unique<Session>(graph_, options);
  }
  // The last one's; of the others it has nothing in it.
  Tensor Run() {
    return session_->Run({{x_, Tensor::Full(DType::kFloat32, {8}, 1)}}, y_);
  }

 private:
  static std::string Name(int rank) {
    return fmt::format("/job:worker/task:{}", rank);
  }

  Graph graph_;
  Output x_, y_;
  std::unique_ptr<Session> session_;
};

TEST_CASE(
    "every connection of a job with a list of addresses is to one of it") {
  for (const bool encrypted : {false, true}) {
    if (encrypted && !HasTls()) continue;
    CAPTURE(encrypted);
    const Watchdog watchdog;
    const std::vector<int> ports = sluice::testing::FreePorts(kRanks);
    const std::vector<LaunchInfo> infos = Listed(ports, encrypted);
    Notes notes;
    Groups groups = JoinEach(infos, [&](int) { return notes.Options(); });
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      SLUICE_RETURN_IF_ERROR(group.Split("rows", group.rank() / 2));
      SLUICE_RETURN_IF_ERROR(group.Split("columns", group.rank() % 2));
      SLUICE_RETURN_IF_ERROR(group.Subgroup("columns")->Barrier("here"));
      Group* const row = group.Subgroup("rows");
      SLUICE_RETURN_IF_ERROR(row->Split("again", 0, -row->rank()));
      Adding adding(infos[At(group.rank())], group);
      const Tensor sum = adding.Run();
      if (group.rank() == kRanks - 1) CHECK(sum.At(7) == 1 + kRanks);
      SLUICE_RETURN_IF_ERROR(group.Barrier("connected"));
      if (group.rank() == 0) {
        const Ports open;
        CHECK(open.listens == std::set<int>(ports.begin(), ports.end()));
        open.CheckListed(ports);
        for (const int port : ports) CHECK(open.Has(port));
      }
      return group.Barrier("looked at");
    }));
    CHECK(notes.lines().empty());
  }
}

TEST_CASE("a part whose port is taken listens at another, and says at which") {
  const Watchdog watchdog;
  const std::vector<int> ports = sluice::testing::FreePorts(kRanks);
  Notes notes;
  Groups groups =
      JoinEach(Listed(ports, false), [&](int) { return notes.Options(); });
  const Listener taken = Listener::Open("127.0.0.1", ports[1]).ValueOrThrow();
  CheckOk(OnAll(groups, [](Group& group) { return group.Split("all", 0); }));
  const std::vector<std::string> lines = notes.lines();
  REQUIRE(lines.size() == 1);
  CAPTURE(lines[0]);
  CHECK(lines[0].starts_with(
      fmt::format("port {} is not to be had (", ports[1])));
  constexpr std::string_view kAt = "listens at port ";
  const size_t at = lines[0].find(kAt);
  REQUIRE(at != std::string::npos);
  const int other = std::stoi(lines[0].substr(at + kAt.size()));
  CHECK(other != ports[1]);
  CHECK(Ports().Has(other));
  CheckOk(OnAll(groups, [](Group& group) {
    return group.Subgroup("all")->Barrier("goes on");
  }));
}

TEST_CASE("those that are left of an elastic job meet at their ports, too") {
  const Watchdog watchdog;
  const std::vector<int> ports = sluice::testing::FreePorts(3);
  sluice::testing::ElasticJob job(
      3, 1, 0, [](int process) { return process == 0 ? 5 : 0; },
      [&](int, const std::shared_ptr<sluice::testing::Mortal>& group) {
        Status status;
        while (status.ok()) status = group->Barrier("step");
        if (group->died()) return;
        status = group->JoinAgain(/*done=*/0);
        CAPTURE(status.ToString());
        CHECK(status.ok());
        if (!status.ok()) return;
        CHECK(group->size() == 2);
        CHECK(group->Barrier("connected").ok());
        Ports().CheckListed(ports);
        CHECK(group->Barrier("looked at").ok());
      },
      ports);
  job.Run();
  CHECK(job.died() == 1);
}

}  // namespace
}  // namespace sluice::dist
