// Links between tasks: made by who may, with certificates or without, mended
// where they break, and gone when they have ended.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/task.h"
#include "dist/collective/links.h"
#include "dist/net/address.h"
#include "tests/dist/cluster/connections.h"
#include "tests/dist/cluster/greeted.h"
#include "tests/dist/cluster/small_cut.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/strangers.h"
#include "tests/support/await.h"
#include "tests/support/error_text.h"
#include "tests/support/scattered_graph.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::AwaitTrue;
using sluice::testing::CheckSameBits;
using sluice::testing::Contains;
using sluice::testing::ErrorOf;
using sluice::testing::ScatteredGraph;

// This process's ends of connections to one of its ports.
std::vector<int> Accepted(int port) {
  return EndsAt([&](const Address& own) { return PortOf(own) == port; });
}

const std::string kNone = "(no error)";

std::string OpeningError(const SmallCut& small, const Workers& workers,
                         TaskOptions task) {
  ClusterOptions options;
  options.task = std::move(task);
  options.connect_timeout = std::chrono::seconds(2);
  return ErrorOf([&] {
    const auto cluster =
        MakeCluster(options, workers.addresses()).ValueOrThrow();
    Session(small.graph, small.Options(cluster));
  });
}

TEST_CASE("with certificates the same bits, strangers or not") {
  if (!HasTls()) return;
  const Authority authority = Authority::Create("test").ValueOrThrow();
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const Watchdog watchdog;
    const Workers workers(2, transport, &authority);
    const Strangers strangers(workers.addresses()[0].port, authority, 1,
                              OptionsOf("", transport).token, 8);
    for (uint32_t seed = 1; seed <= 15; ++seed) {
      CAPTURE(seed);
      const ScatteredGraph gathered(seed, {"/cpu:0"});
      Session single(gathered.graph, gathered.Options(/*fuse=*/false));
      const ScatteredGraph scattered(seed, {CpuOf(0), CpuOf(1)});
      SessionOptions options = scattered.Options(/*fuse=*/false);
      options.cluster = workers.Master();  // another, who has to get in
      options.container = "one";
      Session split(scattered.graph, options);
      CheckSameBits(scattered.Run(split), gathered.Run(single));
    }
    CHECK(strangers.let_in() == 0);
    CHECK(strangers.knocks() > 20);
  }
}

TEST_CASE("a certificate is of one task, and of this cluster") {
  if (!HasTls()) return;
  const Watchdog watchdog;
  const Authority authority = Authority::Create("test").ValueOrThrow();
  const Authority other = Authority::Create("test").ValueOrThrow();
  const std::chrono::hours hour(1);
  const Workers workers(2, Transport::kTcp, &authority);
  const SmallCut small;
  TaskOptions options = OptionsOf("", Transport::kTcp);
  CHECK(OpeningError(small, workers, options) != kNone);  // without one
  options.credentials = other.Issue("master", 0, hour).ValueOrThrow();
  CHECK(Contains(OpeningError(small, workers, options), "certificate"));
  options.credentials = authority.Issue("master", 0, hour).ValueOrThrow();
  CHECK(OpeningError(small, workers, options) == kNone);
  options.name = WorkerName(1);
  CHECK(Contains(OpeningError(small, workers, options),
                 "this is /job:worker/task:1, its certificate "
                 "/job:master/task:0's"));
  WorkerOptions wrong;
  wrong.task = options;
  CHECK(Worker::Start(wrong).status().code() == Code::kInvalidArgument);
  // At the first one's address there is the second.
  options.name = "";
  auto swapped = workers.addresses();
  std::swap(swapped[0].port, swapped[1].port);
  const auto cluster = MakeCluster({.task = options}, swapped).ValueOrThrow();
  CHECK(Contains(ErrorOf([&] { Session(small.graph, small.Options(cluster)); }),
                 "where /job:worker/task:0 should be is /job:worker/task:1"));
}

TEST_CASE("a task that says it is another is sent away") {
  if (!HasTls()) return;
  const Watchdog watchdog;
  const Authority authority = Authority::Create("test").ValueOrThrow();
  const auto issue = [&](const char* role, int rank) {
    return authority.Issue(role, rank, std::chrono::hours(1)).ValueOrThrow();
  };
  std::mutex mutex;
  std::string notes;
  WorkerOptions options;
  options.task = OptionsOf(WorkerName(0), Transport::kTcp);
  options.task.credentials = issue("worker", 0);
  options.task.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.append(line);
  };
  const auto worker = Worker::Start(options).ValueOrThrow();
  const auto tls = Tls::Create(issue("guest", 1)).ValueOrThrow();
  Task liar(OptionsOf(WorkerName(1), Transport::kTcp), tls, nullptr);
  CHECK_FALSE(liar.Reach({WorkerName(0), "127.0.0.1", worker->port()},
                         After(std::chrono::seconds(5)))
                  .ok());
  // It is sent away first, and then spoken of.
  std::string said;
  AwaitTrue([&] {
    const std::lock_guard lock(mutex);
    said = notes;
    return !said.empty();
  });
  CHECK(Contains(said, "/job:guest/task:1 by its certificate"));
}

TEST_CASE("a task of another version is refused, and both are named") {
  const Watchdog watchdog;
  std::mutex mutex;
  std::string notes;
  WorkerOptions options;
  options.task = OptionsOf(WorkerName(0), Transport::kTcp);
  options.task.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.append(line);
  };
  const auto worker = Worker::Start(options).ValueOrThrow();
  const Socket socket = Greeted(worker->port(), "0");
  AwaitTrue([&] {
    const std::lock_guard lock(mutex);
    return !notes.empty();
  });
  const std::lock_guard lock(mutex);
  CHECK(notes == "refused a task: it is Sluice 0, this is " SLUICE_VERSION);
}

TEST_CASE("without certificates nothing goes beyond the loopback") {
  const Watchdog watchdog;
  WorkerOptions options;
  options.task = OptionsOf(WorkerName(0), Transport::kTcp);
  options.host = "0.0.0.0";
  CHECK(Worker::Start(options).status().code() == Code::kFailedPrecondition);
  options.host = "127.0.0.1";
  options.task.token = "";
  CHECK(Worker::Start(options).status().code() == Code::kInvalidArgument);
}

TEST_CASE("lines about who is awaited come after a time above 0") {
  ClusterOptions options;
  options.task = OptionsOf("/job:master/task:3", Transport::kTcp);
  options.task.stall_note = std::chrono::milliseconds(0);
  const auto cluster = MakeCluster(options, {});
  CHECK(cluster.status().code() == Code::kInvalidArgument);
  CHECK(cluster.status().message() ==
        "stall_note is 0 ms, wanted a time above 0");
}

TEST_CASE("a master says for which worker it waits, until that comes") {
  const Watchdog watchdog;
  Workers workers(2, Transport::kTcp);
  workers.End(1);
  const SmallCut small;
  ClusterOptions options;
  options.task = OptionsOf("/job:master/task:3", Transport::kTcp);
  options.task.stall_note = std::chrono::milliseconds(100);
  std::vector<std::string> notes;  // by the thread that waits
  options.task.note = [&](std::string_view line) {
    notes.emplace_back(line);
    // It comes when it has been spoken of twice.
    if (notes.size() == 2) workers.Begin(1);
  };
  const auto cluster = MakeCluster(options, workers.addresses()).ValueOrThrow();
  Session session(small.graph, small.Options(cluster));
  REQUIRE(notes.size() >= 2);
  for (const std::string& line : notes) {
    CAPTURE(line);
    CHECK(line.starts_with(
        fmt::format("/job:master/task:3 waits for {} at 127.0.0.1:{} (",
                    WorkerName(1), workers.addresses()[1].port)));
    CHECK(line.ends_with(" s)"));
  }
  session.Initialize();
  CHECK(small.Run(session).At(0) > 0);
}

TEST_CASE("workers that have lost each other meet again") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  const auto cluster = workers.Master();
  const int port = workers.addresses()[0].port;
  SessionOptions one = small.Options(cluster);
  one.devices.pop_back();
  const Graph empty;
  const Session alone(empty, one);  // with the first worker
  std::vector<int> masters = Accepted(port);
  CHECK(masters.size() == 2);
  Session session(small.graph, small.Options(cluster));
  session.Initialize();
  small.Run(session);
  int cut = 0;
  for (const int end : Accepted(port)) {
    if (std::find(masters.begin(), masters.end(), end) != masters.end())
      continue;
    shutdown(end, SHUT_RDWR);
    ++cut;
  }
  CHECK(cut == 2);
  const std::string lost = ErrorOf([&] { small.Run(session); });
  CHECK(Contains(lost, "/job:worker/task:"));  // closed, or reset
  const double before = session.Read(small.v).At(0);
  small.Run(session);
  CHECK(session.Read(small.v).At(0) == before + 1);
}

TEST_CASE("workers that connect to each other at once understand each other") {
  for (int turn = 0; turn < 30; ++turn) {
    const Watchdog watchdog;
    const Workers workers(2, Transport::kTcp);
    auto backwards = workers.addresses();
    std::swap(backwards[0], backwards[1]);
    const auto use = [&](const std::vector<ClusterTask>& tasks,
                         const std::string& container) {
      ClusterOptions options;
      options.task = OptionsOf("", Transport::kTcp);
      const SmallCut small;
      SessionOptions mine =
          small.Options(MakeCluster(options, tasks).ValueOrThrow());
      mine.container = container;
      Session session(small.graph, mine);
      session.Initialize();
      for (int i = 0; i < 3; ++i) small.Run(session);
      CHECK(session.Read(small.v).At(0) == 3);
    };
    std::string errors[2];
    std::thread other(
        [&] { errors[1] = ErrorOf([&] { use(backwards, "other"); }); });
    errors[0] = ErrorOf([&] { use(workers.addresses(), "one"); });
    other.join();
    CHECK(errors[0] == kNone);
    CHECK(errors[1] == kNone);
  }
}

// A stream of the link of that number: its first, or the second.
Socket StreamOf(int port, int number, bool first) {
  Socket socket = Greeted(port);
  const std::string who =
      fmt::format(R"({{"task": "late", "number": "{}", "to": {}}})", number,
                  first ? "true" : "false");
  ThrowIfError(SendText(FrameKind::kCall, 0, who, 0, socket,
                        After(std::chrono::seconds(5))));
  return socket;
}

// Of a member that is stopped, or cut off, at any point of its coming: before
// the second stream of its own none came.
Socket Begun(int port, int words) {
  return words == 0 ? Greeted(port) : StreamOf(port, words, words == 1);
}

TEST_CASE("members that stand still on the threshold hold up nobody") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kAuto);
  const int port = workers.addresses()[0].port;
  std::vector<Socket> still;
  for (int i = 0; i < 9; ++i) still.push_back(Begun(port, (i + 1) % 3));
  const SmallCut small;
  Session session(small.graph, small.Options(workers.Master()));
  session.Initialize();
  CHECK(small.Run(session).At(0) > 0);
  // Who says nothing is sent away in the end, and was not waited for.
  char byte = 0;
  CHECK(recv(still.back().descriptor(), &byte, 1, MSG_DONTWAIT) == -1);
}

// Of a large job's workers each begins with the first streams of its links.
TEST_CASE("as many links as there may be are begun before any is whole") {
  const Watchdog watchdog;
  const Workers workers(1, Transport::kAuto);
  const int port = workers.addresses()[0].port;
  constexpr int kLinks = 100;
  std::vector<Socket> first, second;
  for (int i = 0; i < kLinks; ++i) first.push_back(StreamOf(port, i, true));
  for (int i = 0; i < kLinks; ++i) {
    second.push_back(StreamOf(port, i, false));
    CAPTURE(i);
    // Who was let in hears who that is.
    const auto said =
        ReceiveHeader(second.back(), After(std::chrono::seconds(20)));
    REQUIRE(said.ok());
    CHECK(said->kind == FrameKind::kCall);
  }
}

TEST_CASE("masters that come and go leave no files open") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  const auto come_and_go = [&] {
    Session session(small.graph, small.Options(workers.Master()));
    session.Initialize();
    small.Run(session);
  };
  come_and_go();
  const size_t before = Descriptors().size();
  for (int i = 0; i < 20; ++i) come_and_go();
  // The last ones' may not be over.
  AwaitTrue([&] { return Descriptors().size() <= before + 12; });
}

TEST_CASE("a task that others come to forgets those that have gone") {
  const Watchdog watchdog;
  struct Idle final : Task::Service {
    Result<Message> Called(const Task::LinkPtr&, const Message&) override {
      return Unimplemented("it does nothing");
    }
    void Ordered(const Task::LinkPtr&, const RunKey&, uint64_t,
                 const OrderBody&) override {}
    void Aborted(const RunKey&, const Status&) override {}
    void Came(const Link&) override {}
    void Gone(const Task::LinkPtr&) override {}
  } idle;
  Task task(OptionsOf(WorkerName(0), Transport::kTcp), nullptr, &idle);
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  const int port = task.Listen(std::move(listener)).ValueOrThrow();
  const auto come_and_go = [&](const std::string& name) {
    Task master(OptionsOf(name, Transport::kTcp), nullptr, nullptr);
    ThrowIfError(master
                     .Reach({WorkerName(0), "127.0.0.1", port},
                            After(std::chrono::seconds(5)))
                     .status());
  };
  come_and_go("the first master");
  AwaitTrue([&] { return task.Find("the first master") == nullptr; });
  // Who comes after its link's last call finds the link, and gives it back.
  for (int i = 0; i < 1000 && !task.Lost("the first master").ok(); ++i) {
    come_and_go("another master");
  }
  CHECK(task.Lost("the first master").ToString() == "ok");
}

}  // namespace
}  // namespace sluice::dist::testing
