// A session over several tasks: the bits of one device, errors that name the
// task, and workers that go and come back.
#include "dist/cluster/master.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/rendezvous/linked_rendezvous.h"
#include "graph/builder.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "tests/dist/cluster/greeted.h"
#include "tests/dist/cluster/small_cut.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scattered_graph.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::CheckSameBits;
using sluice::testing::Contains;
using sluice::testing::ErrorOf;
using sluice::testing::ScatteredGraph;

// The variable and what stays beside it are on the first device.
std::vector<std::string> SomeDevices(uint32_t seed, int workers) {
  std::vector<std::string> devices;
  if (seed % 4 == 0) devices.emplace_back("/cpu:0");
  for (int i = 0; i < workers; ++i) {
    devices.push_back(CpuOf((i + static_cast<int>(seed)) % 3));
  }
  if (seed % 4 == 1) devices.emplace_back("/cpu:0");
  return devices;
}

TEST_CASE("random graphs give one device's bits over several tasks") {
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const Workers workers(3, transport);
    const auto cluster = workers.Master();
    for (uint32_t seed = 1; seed <= 150; ++seed) {
      const Watchdog watchdog;
      CAPTURE(seed);
      const ScatteredGraph gathered(seed, {"/cpu:0"});
      Session single(gathered.graph, gathered.Options(/*fuse=*/false));
      const ScatteredGraph scattered(
          seed, SomeDevices(seed, 1 + static_cast<int>(seed % 3)));
      SessionOptions options = scattered.Options(/*fuse=*/false);
      options.cluster = cluster;
      options.container = "one";  // variables go with the session
      Session split(scattered.graph, options);
      CheckSameBits(scattered.Run(split), gathered.Run(single));
    }
  }
}

TEST_CASE("variables live with their worker, for all masters") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  const auto cluster = workers.Master(), other = workers.Master();
  {
    Session session(small.graph, small.Options(cluster));
    CHECK_FALSE(session.IsInitialized(small.v));
    CHECK(Contains(ErrorOf([&] { session.Read(small.v); }),
                   "variable 'v' is not initialised"));
    const std::string early = ErrorOf([&] {
      session.Run({{small.x, small.One()}}, small.twice);
    });
    CHECK(Contains(early, WorkerName(0)));
    CHECK(Contains(early, "'v'"));
    session.Initialize();
    session.Run({{small.x, small.One()}}, small.twice);
    CHECK(session.Read(small.v).At(3) == 1);
  }
  Session session(small.graph, small.Options(other));
  CHECK(session.IsInitialized(small.v));
  session.Write(small.v, Tensor::Array<float>({4}, {5, 6, 7, 8}));
  session.Run({{small.x, small.One()}}, small.twice);
  CHECK(session.Read(small.v).At(3) == 9);
}

TEST_CASE("a far variable is read into the memory of what has its type") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  Session session(small.graph, small.Options(workers.Master()));
  session.Write(small.v, Tensor::Array<float>({4}, {5, 6, 7, 8}));
  Tensor value(DType::kFloat32, {4});
  const Tensor same = value;
  session.Read(small.v, &value);
  CHECK(same.At(3) == 8);
  CHECK(value.At(3) == 8);
  Tensor other(DType::kFloat32, {2, 2});
  session.Read(small.v, &other);
  CHECK(other.BitEqual(same));
}

TEST_CASE("a variable that another master's graph made is of its type") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  Session session(small.graph, small.Options(workers.Master()));
  session.Initialize();
  Graph graph;
  Output v;
  {
    const DeviceScope there(graph, CpuOf(0));
    v = graph.Variable("v", Zeros({3}));
  }
  const Session second(graph, small.Options(workers.Master()));
  const std::string error = ErrorOf([&] { second.Read(v); });
  CHECK(Contains(error, "float32[3] in the graph"));
  CHECK(Contains(error, "float32[4] on " + CpuOf(0)));
}

TEST_CASE("a worker that ends is an error that names it, and may come back") {
  const Watchdog watchdog;
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    Workers workers(2, transport);
    const SmallCut small;
    Session session(small.graph, small.Options(workers.Master()));
    session.Initialize();
    const auto run = [&] {
      return session.Run({{small.x, small.One()}}, small.twice);
    };
    run();
    for (const int task : {0, 1}) {
      workers.End(task);
      CHECK(Contains(ErrorOf(run), WorkerName(task)));
      CHECK(
          Contains(ErrorOf([&] { session.Read(small.v); }), WorkerName(task)));
      workers.Begin(task);
      if (task == 0) {
        CHECK(Contains(ErrorOf(run), "'v'"));  // it has no value
        CHECK_FALSE(session.IsInitialized(small.v));
        session.Initialize();
      }
      run();
    }
    CHECK(session.Read(small.v).At(0) == 2);
  }
}

TEST_CASE("a cluster knows who is lost until it is there again") {
  const Watchdog watchdog;
  Workers workers(2, Transport::kTcp);
  const std::shared_ptr<Cluster> cluster = workers.Master();
  CHECK(cluster->Renew("/job:worker/task:7").code() == Code::kNotFound);
  for (const int task : {0, 1}) ThrowIfError(cluster->Renew(WorkerName(task)));
  CHECK(cluster->Lost().ok());
  workers.End(1);
  while (cluster->Lost().ok()) std::this_thread::yield();
  CHECK(Contains(cluster->Lost().message(), WorkerName(1)));
  CHECK_FALSE(cluster->Renew(WorkerName(1)).ok());
  CHECK(cluster->Renew(WorkerName(0)).ok());
  // It is not asked as if it knew what was said to it.
  workers.Begin(1);
  CHECK(cluster->Ask(WorkerName(1), "").status().code() == Code::kUnavailable);
  CHECK(cluster->Renew(WorkerName(1)).ok());
  CHECK(cluster->Lost().ok());
}

// Who begins again with those that are lost asks as soon as it has an error.
TEST_CASE("whoever has an error of a task that is gone finds it lost") {
  const Watchdog watchdog;
  for (int trial = 0; trial < sluice::testing::Rounds(60); ++trial) {
    CAPTURE(trial);
    Workers workers(2, trial % 2 == 0 ? Transport::kTcp : Transport::kShared);
    const SmallCut small;
    const std::shared_ptr<Cluster> cluster = workers.Master();
    Session session(small.graph, small.Options(cluster));
    session.Initialize();
    const int task = trial / 2 % 2;
    std::thread end([&] { workers.End(task); });
    const auto fails = [&] {
      return ErrorOf([&] {
               session.Run({{small.x, small.One()}}, small.twice);
             }) != "(no error)";
    };
    while (!fails()) {
    }
    CHECK(Contains(cluster->Lost().message(), WorkerName(task)));
    end.join();
  }
}

// The others of its links may have ended by then, and a run with them.
TEST_CASE("a task that is about to end is lost before its link has ended") {
  const Watchdog watchdog;
  Workers workers(1, Transport::kTcp);
  const std::shared_ptr<Cluster> cluster = workers.Master();
  const Socket still = Greeted(workers.addresses()[0].port);
  ThrowIfError(cluster->Renew(WorkerName(0)));  // it has been let in before
  CHECK(cluster->Lost().ok());
  // Waits for the one that stands still on the threshold, then ends its links.
  std::thread end([&] { workers.End(0); });
  Status lost;
  while (lost.ok()) lost = cluster->Lost();
  CHECK(Contains(lost.message(), WorkerName(0) + ": it is about to end"));
  CHECK_FALSE(cluster->Renew(WorkerName(0)).ok());
  end.join();
  CHECK(Contains(cluster->Lost().message(), WorkerName(0)));
}

TEST_CASE("a master forgets the ways to the devices of closed sessions") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  const std::shared_ptr<Cluster> cluster = workers.Master();
  Cluster::Request request;
  request.devices = {CpuOf(0), CpuOf(1)};
  const auto open = cluster->Open(request).ValueOrThrow();
  const std::shared_ptr<Rendezvous> rendezvous = open->rendezvous();
  const auto& mine = static_cast<const LinkedRendezvous&>(*rendezvous);
  CHECK(mine.ways() == 0);  // nobody was reached yet
  open->Connect().ValueOrThrow();
  for (int turn = 0; turn < 300; ++turn) {
    Session session(small.graph, small.Options(cluster));
    if (turn == 0) session.Initialize();
    small.Run(session);
    CHECK(session.Read(small.v).At(0) == turn + 1);
    CHECK(mine.ways() == 4);
  }
  CHECK(mine.ways() == 2);
}

// Two masters of one name are one that has lost its links without knowing.
TEST_CASE("who renews a task ends what it had under way there before") {
  const Watchdog watchdog;
  for (int trial = 0; trial < 12; ++trial) {
    Workers workers(2, Transport::kTcp);
    const auto master = [&](const char* name) {
      ClusterOptions options;
      options.task = OptionsOf(name, Transport::kTcp);
      return MakeCluster(options, workers.addresses()).ValueOrThrow();
    };
    const SmallCut small;
    Session earlier(small.graph, small.Options(master("/job:worker/task:8")));
    Session other(small.graph, small.Options(master("/job:worker/task:9")));
    earlier.Initialize();
    std::string error;
    std::atomic<int> runs{0};
    std::thread goes_on([&] {
      error = ErrorOf([&] {
        while (true) {
          small.Run(earlier);
          ++runs;
        }
      });
    });
    while (runs < 1 + 3 * trial) std::this_thread::yield();
    const std::shared_ptr<Cluster> later = master("/job:worker/task:8");
    ThrowIfError(later->Renew(WorkerName(0)));
    const double then = other.Read(small.v).At(0);
    goes_on.join();
    CHECK(error != "");
    CHECK(other.Read(small.v).At(0) == then);
    CHECK(then >= runs);
    // Others' sessions are left alone.
    small.Run(other);
  }
}

TEST_CASE("a step that was prepared for a worker that is gone says so") {
  const Watchdog watchdog;
  Workers workers(2, Transport::kTcp);
  const SmallCut small;
  Session session(small.graph, small.Options(workers.Master()));
  session.Initialize();
  PreparedStep step =
      session.Prepare({{small.x, Shape{4}}}, {small.twice}, {small.add});
  std::vector<Tensor> fetches = step.MakeFetches();
  const std::vector<Tensor> feeds = {small.One()};
  step.Run(feeds, fetches);
  workers.End(1);
  CHECK(Contains(ErrorOf([&] { step.Run(feeds, fetches); }), WorkerName(1)));
  workers.Begin(1);
  CHECK(Contains(ErrorOf([&] { step.Run(feeds, fetches); }), WorkerName(1)));
  step = session.Prepare({{small.x, Shape{4}}}, {small.twice}, {small.add});
  step.Run(feeds, fetches);
}

TEST_CASE("a master without the token, or of the wrong names, is refused") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  ClusterOptions options;
  options.task = OptionsOf("", Transport::kTcp);
  options.connect_timeout = std::chrono::seconds(2);
  options.task.token[3] = '8';
  const auto stranger =
      MakeCluster(options, workers.addresses()).ValueOrThrow();
  CHECK(
      Contains(ErrorOf([&] { Session(small.graph, small.Options(stranger)); }),
               WorkerName(0)));
  options.task.token[3] = '7';
  auto addresses = workers.addresses();
  std::swap(addresses[0].port, addresses[1].port);
  const auto swapped = MakeCluster(options, addresses).ValueOrThrow();
  CHECK(Contains(ErrorOf([&] { Session(small.graph, small.Options(swapped)); }),
                 "there is " + WorkerName(1)));
  SessionOptions nowhere = small.Options(workers.Master());
  nowhere.devices.push_back("/job:ps/task:0/cpu:0");
  CHECK(Contains(ErrorOf([&] { Session(small.graph, nowhere); }),
                 "/job:ps/task:0/cpu:0"));
}

TEST_CASE("a worker that is no task, or has no such device, does not start") {
  const auto start = [](const std::string& name,
                        std::vector<std::string> devices) {
    WorkerOptions options;
    options.task = OptionsOf(name, Transport::kTcp);
    options.devices = std::move(devices);
    return Worker::Start(options).status().message();
  };
  for (const char* name : {"", "bob", "/cpu:0", "/job:worker", "worker/0"}) {
    CHECK(Contains(start(name, {"/cpu:0"}),
                   "'" + std::string(name) + "' is no task"));
  }
  CHECK(Contains(start(WorkerName(1), {}), "has no device"));
  CHECK(Contains(start(WorkerName(1), {"/cpu:0", "cpu:1"}), "cpu:1"));
  CHECK(
      Contains(start(WorkerName(1), {"/job:worker/task:1/cpu:0"}), "unknown"));
  // With one or without, masters' variables are not in its memory.
  CHECK(Contains(start(WorkerName(1), {"/cpu:0", "/gpu:0"}), "/gpu:0"));
  CHECK(start(WorkerName(1), {"/cpu:0", "/null:0"}).empty());
}

TEST_CASE("a run that fails leaves the others under way alone") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  Graph graph;
  const Output index = graph.Placeholder("index", DType::kInt64, {});
  Output picked;
  {
    const DeviceScope there(graph, CpuOf(0));
    picked = Gather(Tanh(graph.Constant(Tensor::Array<float>({3}, {1, 2, 3}))),
                    index) *
             2.0;
  }
  {
    const DeviceScope there(graph, CpuOf(1));
    picked = picked + 1.0;
  }
  SessionOptions options;
  options.devices = {"/cpu:0", CpuOf(0), CpuOf(1)};
  options.cluster = workers.Master();
  options.concurrent_runs = 3;
  Session session(graph, options);
  const auto run = [&](int64_t at) {
    return session.Run({{index, Tensor::Scalar<int64_t>(at)}}, picked);
  };
  const Tensor wanted = run(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 150; ++turn) CHECK(run(1).BitEqual(wanted));
    });
  }
  for (int turn = 0; turn < 150; ++turn) {
    const std::string error = ErrorOf([&] { run(7); });
    CHECK(Contains(error, WorkerName(0)));
    CHECK(Contains(error, "7"));
  }
  for (std::thread& thread : threads) thread.join();
}

// Values that never come: each turn takes a while.
TEST_CASE("a run is cancelled, and has a deadline, on all tasks") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  Graph graph;
  Output big = graph.Placeholder("x", DType::kFloat32, {500, 500});
  const Output x = big;
  for (int i = 0; i < 400; ++i) {
    const DeviceScope there(graph, CpuOf(i / 20 % 2));
    big = MatMul(big, big) * 0.001;
  }
  SessionOptions options;
  options.devices = {"/cpu:0", CpuOf(0), CpuOf(1)};
  options.cluster = workers.Master();
  const Tensor value(DType::kFloat32, {500, 500});
  {
    Session session(graph, options);
    session.Prepare({{x, value.shape()}}, {big});
    std::atomic<bool> over{false};
    std::thread canceller([&] {
      while (!over) {  // one that comes before the run does nothing
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        session.Cancel();
      }
    });
    std::string error;
    do {  // a run may be over before the next one comes
      error = ErrorOf([&] { session.Run({{x, value}}, big); });
    } while (error == "(no error)");
    CHECK(Contains(error, "cancelled"));
    over = true;
    canceller.join();
  }
  options.deadline = std::chrono::milliseconds(5);
  Session session(graph, options);
  session.Prepare({{x, value.shape()}}, {big});
  CHECK(Contains(ErrorOf([&] { session.Run({{x, value}}, big); }), "deadline"));
}

}  // namespace
}  // namespace sluice::dist::testing
