// Peers, which all run the same steps, each its own part: the bits of one
// device, whoever has parts, and ends that all hear of.
#include "dist/cluster/peers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/introduction.h"
#include "dist/collective/texts.h"
#include "dist/membership/rank_name.h"
#include "dist/net/address.h"
#include "graph/builder.h"
#include "graph/passes/device_description.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "tests/dist/cluster/connections.h"
#include "tests/dist/cluster/peer_sessions.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/free_ports.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scattered_graph.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;
using sluice::testing::ErrorOf;
using sluice::testing::ScatteredGraph;

// What a peer fetches in some steps: an empty tensor for what is another's.
std::vector<Tensor> Steps(const ScatteredGraph& scattered, Session& session) {
  std::vector<Tensor> values;
  session.Initialize();
  for (int step = 0; step < 3; ++step) {
    for (Tensor& value :
         session.Run(scattered.random.Feeds(), scattered.random.fetches(),
                     scattered.random.targets())) {
      values.push_back(std::move(value));
    }
  }
  const Output variable = scattered.random.variable();
  values.push_back(session.CanRead(variable) ? session.Read(variable)
                                             : Tensor());
  return values;
}

TEST_CASE("random graphs give one device's bits over peers") {
  for (uint32_t seed = 1; seed <= sluice::testing::Rounds(120u); ++seed) {
    const Watchdog watchdog;
    const int peers = 2 + static_cast<int>(seed % 3);
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/cpu:0"});
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    const std::vector<Tensor> wanted = Steps(gathered, single);
    std::vector<std::vector<Tensor>> got(static_cast<size_t>(peers));
    Groups groups = JoinAll(peers, {});
    InThreads(peers, [&](int rank) {
      const Transport transport =
          seed % 2 == 0 ? Transport::kTcp : Transport::kShared;
      const ScatteredGraph scattered(seed, DevicesOf(peers));
      SessionOptions options = OptionsOf(*groups[rank], transport);
      options.fuse = false;
      options.concurrent_runs = 1 + rank % 2;
      Session session(scattered.graph, options);
      got[rank] = Steps(scattered, session);
      // Who goes ends what others have under way.
      ThrowIfError(groups[rank]->Barrier("done"));
    });
    for (size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(i);
      int having = 0;
      for (const std::vector<Tensor>& mine : got) {
        REQUIRE(mine.size() == wanted.size());
        if (mine[i].raw() == nullptr) continue;
        ++having;
        CHECK(mine[i].BitEqual(wanted[i]));
      }
      CHECK(having <= 1);
      // One of no elements has no bytes to be told by.
      if (wanted[i].elements() > 0) CHECK(having == 1);
    }
  }
}

// Of which the last is used on the next device each time.
struct Chain {
  Graph graph;
  Output x, y;
  explicit Chain(const std::vector<std::string>& devices) {
    x = graph.Placeholder("x", DType::kFloat32, {1000});
    y = x;
    for (int i = 0; i < 3; ++i) {
      for (const std::string& device : devices) {
        const DeviceScope there(graph, device);
        y = y + 1.0f;
      }
    }
  }
};

TEST_CASE("many runs under way: each has its own values") {
  const Watchdog watchdog;
  constexpr int kPeers = 3;
  Groups groups = JoinAll(kPeers, {});
  InThreads(kPeers, [&](int rank) {
    const Chain chain(DevicesOf(kPeers));
    SessionOptions options = OptionsOf(*groups[rank]);
    options.concurrent_runs = kPeers - rank;
    Session session(chain.graph, options);
    PreparedStep step = session.Prepare({{chain.x, {1000}}}, {chain.y}, {});
    std::vector<PendingRun> runs;
    std::vector<std::vector<Tensor>> values;
    constexpr int kRuns = 200;
    for (int run = 0; run < kRuns; ++run) values.push_back(step.MakeFetches());
    for (int run = 0; run < kRuns; ++run) {
      const std::vector<Tensor> feeds = {
          Tensor::Full(DType::kFloat32, {1000}, static_cast<double>(run))};
      runs.push_back(
          step.Start(feeds, values[run], static_cast<uint32_t>(run)));
    }
    for (int run = 0; run < kRuns; ++run) {
      runs[run].Wait();
      if (rank != kPeers - 1) continue;
      CHECK(values[run][0].At(999) == run + 3 * kPeers);
    }
    ThrowIfError(groups[rank]->Barrier("done"));
  });
}

TEST_CASE("a peer that goes ends the runs of the others, who say who it was") {
  const Watchdog watchdog;
  constexpr int kPeers = 3;
  for (int failing = 0; failing < kPeers; ++failing) {
    Groups groups = JoinAll(kPeers, {});
    std::vector<std::string> errors(kPeers);
    InThreads(kPeers, [&](int rank) {
      const Chain chain(DevicesOf(kPeers));
      SessionOptions options = OptionsOf(*groups[rank]);
      auto session = std::make_unique<Session>(chain.graph, options);
      const Tensor one = Tensor::Full(DType::kFloat32, {1000}, 1);
      session->Run({{chain.x, one}}, chain.y);
      // The first step is over everywhere.
      ThrowIfError(groups[rank]->Barrier("begun"));
      if (rank == failing) {  // goes without a word
        session.reset();
        options.cluster.reset();
        return;
      }
      errors[rank] = ErrorOf([&] {
        for (int run = 0; run < 1000; ++run) {
          session->Run({{chain.x, one}}, chain.y);
        }
      });
    });
    for (int rank = 0; rank < kPeers; ++rank) {
      CAPTURE(failing);
      CAPTURE(rank);
      if (rank != failing) CHECK(Contains(errors[rank], "/job:peer/task:"));
    }
  }
}

// Two of them find the run impossible at once, before they have said anything
// to the third, which could take part and waits for them. `anew`: it is of a
// step that these two cannot prepare any more.
void CheckApart(bool anew) {
  CAPTURE(anew);
  const Watchdog watchdog;
  constexpr int kPeers = 3;
  constexpr const char* kApart = "127.0.0.2";  // where rank 1 alone listens
  Groups groups = JoinAll(kPeers, {});
  std::vector<std::string> errors(kPeers);
  InThreads(kPeers, [&](int rank) {
    Group& group = *groups[rank];
    // A run needs the others in the order of their names: rank 0 is the last.
    PeersOptions peers =
        PeerOptions(TaskName(rank == 0 ? kPeers : rank), Transport::kTcp);
    if (rank == 1) peers.host = kApart;
    SessionOptions options = OptionsOf(group, peers);
    options.devices.clear();
    for (const int task : {1, 2, kPeers}) {
      options.devices.push_back(TaskName(task) + "/cpu:0");
    }
    const Chain chain(options.devices);
    Session session(chain.graph, options);
    PreparedStep step = session.Prepare({{chain.x, {1000}}}, {chain.y}, {});
    const std::vector<Tensor> feeds = {
        Tensor::Full(DType::kFloat32, {1000}, 1)};
    std::vector<Tensor> fetches = step.MakeFetches();
    step.Run(feeds, fetches);
    ThrowIfError(group.Barrier("all have run"));
    if (rank == 0) {
      const std::vector<int> ends =
          EndsAt([&](const Address& own) { return HostOf(own) == kApart; });
      CHECK_FALSE(ends.empty());  // those that rank 2 has connected to
      for (const int end : ends) shutdown(end, SHUT_RDWR);
    }
    while (rank != 0 && options.cluster->Lost().ok()) std::this_thread::yield();
    ThrowIfError(group.Barrier("two have lost each other"));
    errors[rank] = ErrorOf([&] {
      if (anew) step = session.Prepare({{chain.x, {1000}}}, {chain.y}, {});
      step.Run(feeds, fetches);
    });
    ThrowIfError(group.Barrier("done"));
  });
  for (int rank = 0; rank < kPeers; ++rank) {
    CAPTURE(rank);
    CAPTURE(errors[rank]);
    // Whoever says it, it is of these two.
    if (rank != 1) CHECK(Contains(errors[rank], TaskName(1)));
    if (rank != 2) CHECK(Contains(errors[rank], TaskName(2)));
  }
}

TEST_CASE("peers that have lost each other end the runs of all") {
  for (const bool anew : {false, true}) CheckApart(anew);
}

// Of which there may be 65536.
TEST_CASE("sessions that cannot be opened leave no ways to peers behind") {
  const Watchdog watchdog;
  Groups groups = JoinAll(2, {});
  std::vector<std::string> errors(2);
  InThreads(2, [&](int rank) {
    const auto cluster = OptionsOf(*groups[rank]).cluster;
    Cluster::Request request;
    request.devices = {"/job:peer/task:7/cpu:0"};  // nobody's
    for (uint64_t i = 0; i < 12'000; ++i) {
      DeviceDescription device;
      device.name = TaskName(rank) + fmt::format("/cpu:{}", i);
      request.descriptions.push_back(device.ToText());
      request.incarnations.push_back(0);
    }
    for (uint64_t opened = 0; opened < 6; ++opened) {
      uint64_t next = opened << 32 | static_cast<uint64_t>(rank) << 24;
      for (uint64_t& incarnation : request.incarnations) incarnation = ++next;
      errors[rank] = cluster->Open(request).status().message();
    }
    ThrowIfError(groups[rank]->Barrier("done"));
  });
  for (const std::string& error : errors) {
    CHECK(error == "none of the 2 peers has device '/job:peer/task:7/cpu:0'");
  }
}

// Who is to connect to it does not wait the minute that they have.
TEST_CASE("a peer that goes before it is met is named by all others") {
  constexpr int kPeers = 3;
  for (const int gone : {0, 1}) {
    const Watchdog watchdog(std::chrono::seconds(40));
    Groups groups = JoinAll(kPeers, {});
    std::vector<Status> opened(kPeers);
    InThreads(kPeers, [&](int rank) {
      auto& group = groups[static_cast<size_t>(rank)];
      if (rank == gone) {
        Peer own;
        own.address = {TaskName(rank), "127.0.0.1",
                       sluice::testing::FreePorts(1)[0]};
        ThrowIfError(GatherTexts(*group, "peers", own.ToText()).status());
        group.reset();
        return;
      }
      opened[static_cast<size_t>(rank)] =
          OptionsOf(*group).cluster->Open({}).status();
    });
    for (int rank = 0; rank < kPeers; ++rank) {
      CAPTURE(gone);
      CAPTURE(rank);
      if (rank == gone) continue;
      CHECK(Contains(opened[static_cast<size_t>(rank)].message(),
                     RankName(gone, kPeers)));
    }
  }
}

TEST_CASE("a peer that is late is named, and the step goes on") {
  const Watchdog watchdog;
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    Groups groups = JoinAll(2, {});
    std::mutex mutex;
    std::string said;
    InThreads(2, [&](int rank) {
      const Chain chain(DevicesOf(2));
      Session session(
          chain.graph,
          OptionsOf(*groups[rank], transport, [&](std::string_view line) {
            const std::lock_guard lock(mutex);
            said += std::string(line) + "\n";
          }));
      // Until it has been said.
      for (bool named = rank == 0; !named;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const std::lock_guard lock(mutex);
        named = !said.empty();
      }
      const Tensor one = Tensor::Full(DType::kFloat32, {1000}, 1);
      const Tensor got = session.Run({{chain.x, one}}, chain.y);
      if (rank == 1) CHECK(got.At(999) == 7);
      ThrowIfError(groups[rank]->Barrier("done"));
    });
    CAPTURE(said);
    CHECK(Contains(said, " s /job:peer/task:0 has waited for '"));
    CHECK(Contains(said, "' of /job:peer/task:1\n"));
    CHECK_FALSE(Contains(said, ";"));  // the node alone
  }
}

// What crosses is of one dtype and size in all of them.
TEST_CASE("peers whose steps differ have an error that names both") {
  const Watchdog watchdog;
  enum class Differs { kInNothing, kInNode, kInNumber };
  for (const Differs differs :
       {Differs::kInNothing, Differs::kInNode, Differs::kInNumber}) {
    CAPTURE(static_cast<int>(differs));
    Groups groups = JoinAll(2, {});
    std::vector<std::string> errors(2);
    InThreads(2, [&](int rank) {
      const std::vector<std::string> devices = DevicesOf(2);
      const Differs mine = rank == 0 ? Differs::kInNothing : differs;
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {4});
      Output sum, product, there, back;
      {
        const DeviceScope on(graph, devices[0]);
        sum = x + 1.0f;
        product = x * 2.0f;
      }
      {
        const DeviceScope on(graph, devices[1]);
        there = (mine == Differs::kInNode ? product : sum) + 3.0f;
        if (mine == Differs::kInNumber) there = there + product;
      }
      {
        const DeviceScope on(graph, devices[0]);
        back = there + product;
      }
      Session session(graph, OptionsOf(*groups[rank]));
      const Tensor one = Tensor::Full(DType::kFloat32, {4}, 1);
      errors[rank] = ErrorOf([&] { session.Run({{x, one}}, back); });
      ThrowIfError(groups[rank]->Barrier("done"));
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      if (differs == Differs::kInNothing) {
        CHECK(error == "(no error)");
        continue;
      }
      CHECK(Contains(error, TaskName(0)));
      CHECK(Contains(error, TaskName(1)));
      CHECK(Contains(error, "run different steps"));
    }
  }
}

TEST_CASE("what is another peer's is not to be read here") {
  const Watchdog watchdog;
  Groups groups = JoinAll(2, {});
  InThreads(2, [&](int rank) {
    Graph graph;
    Output v;
    {
      const DeviceScope there(graph, DevicesOf(2)[1]);
      v = graph.Variable("v", Zeros({2}));
    }
    SessionOptions options = OptionsOf(*groups[rank], Transport::kTcp);
    Session session(graph, options);
    session.Initialize();
    session.Write(v, Tensor::Full(DType::kFloat32, {2}, 3));
    CHECK(session.CanRead(v) == (rank == 1));
    if (rank == 1) {
      CHECK(session.Read(v).At(1) == 3);
    } else {
      CHECK(Contains(ErrorOf([&] { session.Read(v); }), "'v' is on"));
    }
    // Two that say they are the same.
    SessionOptions same = options;
    same.task = TaskName(0);
    CHECK(Contains(ErrorOf([&] { const Session none(graph, same); }),
                   "two peers have device"));
    // A device that nobody has, as all of them name it.
    options.devices.push_back("/job:peer/task:7/cpu:0");
    CHECK(Contains(ErrorOf([&] { const Session none(graph, options); }),
                   "none of the 2 peers"));
    options.task = TaskName(9);
    CHECK(Contains(ErrorOf([&] { const Session none(graph, options); }),
                   "has none of the devices"));
  });
}

}  // namespace
}  // namespace sluice::dist::testing
