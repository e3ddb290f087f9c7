// Receives and sends that wait for a task that lives and does something else:
// what is said of them, when, and for how long they count.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/frame.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "engine/runtime/waker.h"
#include "tests/dist/rendezvous/tasks.h"
#include "tests/support/watchdog.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Watchdog;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Lines = std::vector<std::string>;
constexpr auto kNever = Clock::time_point::max();

class Nobody final : public Waker {
 public:
  void Wake() override {}
};

// A worker that says so after a second, and a server that sends when the test
// has it. Beats are the test's.
struct Pair {
  explicit Pair(BothEnds wires = Connect(false))
      : worker(std::move(wires.one), "/job:ps/task:0", kOther,
               std::chrono::seconds(10),
               std::make_shared<LinkedRendezvous>(
                   0, nullptr, "/job:worker/task:2",
                   StallNotes{milliseconds(1000),
                              [this](std::string_view line) {
                                said.emplace_back(line);
                              }})),
        server(std::move(wires.other), "/job:worker/task:2", kOne) {}

  // What is said at the next beats, four a second.
  Lines Beats(int beats) {
    said.clear();
    for (int i = 0; i < beats; ++i) {
      worker.rendezvous->Look(now += milliseconds(250));
    }
    return said;
  }
  RunKey NewRun() const { return worker.rendezvous->NewRun(); }
  sluice::Exchange& Join(const RunKey& key) const {
    return **worker.rendezvous->Join(key, kEdges, 1, kNever);
  }
  // Sends these and leaves the run.
  void Serve(const RunKey& key, const std::vector<Edge>& edges) const {
    sluice::Exchange& run = **server.rendezvous->Join(key, kEdges, 1, kNever);
    int32_t value = 7;
    for (const Edge& edge : edges) CHECK(run.StartSend(edge, {&value}).ok());
    for (const Edge& edge : edges) CHECK(run.WaitSent(edge, {&value}).ok());
    server.rendezvous->Leave(key);
  }

  static constexpr int kEdges = 3;
  Lines said;
  TestTask worker, server;
  Clock::time_point now = Clock::now();
};

// To the worker, as a partition names it.
Edge Value(int number, const std::string& node) {
  Edge edge = EdgeOf(number, sizeof(int32_t), /*to_other=*/false);
  edge.name = "/job:ps/task:0/cpu:0;/job:worker/task:2/cpu:0;" + node;
  return edge;
}

std::string Line(int seconds, const std::string& node) {
  return "for " + std::to_string(seconds) +
         " s /job:worker/task:2 has waited for '" + node +
         "' of /job:ps/task:0";
}

TEST_CASE("the oldest wait of a run is named after the limit and each after") {
  const Watchdog watchdog;
  Pair tasks;
  Nobody nobody;
  const RunKey key = tasks.NewRun();
  sluice::Exchange& run = tasks.Join(key);
  const Edge weights = Value(0, "fc1/weights:0"), bias = Value(1, "fc1/bias:0");
  std::array<int32_t, 2> got{};
  CHECK(run.StartReceive(weights, {&got[0]}).ok());
  CHECK(run.StartReceive(bias, {&got[1]}).ok());
  CHECK(tasks.Beats(20).empty());  // the step computes meanwhile
  CHECK_FALSE(run.Received(weights, nobody));
  CHECK(tasks.Beats(3).empty());
  CHECK_FALSE(run.Received(bias, nobody));
  CHECK_FALSE(run.Received(weights, nobody));  // woken for nothing
  CHECK(tasks.Beats(10) == Lines{Line(1, "fc1/weights:0"),
                                 Line(2, "fc1/weights:0"),
                                 Line(3, "fc1/weights:0")});
  // From then on it is the other, and no sooner than a second after.
  tasks.Serve(key, {weights});
  CHECK(run.WaitReceived(weights, {&got[0]}).ok());
  CHECK(tasks.Beats(3).empty());
  CHECK(tasks.Beats(1) == Lines{Line(3, "fc1/bias:0")});
  CHECK(got[0] == 7);
  tasks.worker.rendezvous->Abort(key, Cancelled("enough"));
  CHECK(tasks.Beats(20).empty());
  CHECK(run.WaitReceived(bias, {&got[1]}).message() == "enough");
  tasks.worker.rendezvous->Leave(key);
}

TEST_CASE("each run says what it waits for") {
  const Watchdog watchdog;
  Pair tasks;
  Nobody nobody;
  const std::array<RunKey, 2> keys = {tasks.NewRun(), tasks.NewRun()};
  const std::array<Edge, 2> edges = {Value(0, "a:0"), Value(0, "b:0")};
  std::array<sluice::Exchange*, 2> runs{};
  std::array<int32_t, 2> got{};
  for (size_t i = 0; i < 2; ++i) {
    runs[i] = &tasks.Join(keys[i]);
    CHECK(runs[i]->StartReceive(edges[i], {&got[i]}).ok());
    CHECK_FALSE(runs[i]->Received(edges[i], nobody));
  }
  CHECK(tasks.Beats(5) == Lines{Line(1, "a:0"), Line(1, "b:0")});
  for (size_t i = 0; i < 2; ++i) {
    tasks.Serve(keys[i], {edges[i]});
    CHECK(runs[i]->WaitReceived(edges[i], {&got[i]}).ok());
    CHECK(tasks.Beats(8) ==
          (i == 0 ? Lines{Line(2, "b:0"), Line(3, "b:0")} : Lines{}));
    tasks.worker.rendezvous->Leave(keys[i]);
  }
}

TEST_CASE("a process that stood still has not waited") {
  const Watchdog watchdog;
  Pair tasks;
  Nobody nobody;
  const RunKey key = tasks.NewRun();
  sluice::Exchange& run = tasks.Join(key);
  const Edge edge = Value(0, "x:0");
  int32_t got = 0;
  CHECK(run.StartReceive(edge, {&got}).ok());
  CHECK_FALSE(run.Received(edge, nobody));
  CHECK(tasks.Beats(1).empty());
  tasks.now += std::chrono::seconds(60);
  CHECK(tasks.Beats(2).empty());
  CHECK(tasks.Beats(1) == Lines{Line(1, "x:0")});
  tasks.Serve(key, {edge});
  CHECK(run.WaitReceived(edge, {&got}).ok());
  tasks.worker.rendezvous->Leave(key);
}

TEST_CASE("beats of many links are no more time than passes") {
  const Watchdog watchdog;
  Pair tasks;
  Nobody nobody;
  const RunKey key = tasks.NewRun();
  sluice::Exchange& run = tasks.Join(key);
  const Edge edge = Value(0, "x:0");
  int32_t got = 0;
  CHECK(run.StartReceive(edge, {&got}).ok());
  CHECK_FALSE(run.Received(edge, nobody));
  CHECK(tasks.Beats(4).empty());
  for (int link = 0; link < 100; ++link) {
    tasks.worker.rendezvous->Look(tasks.now + milliseconds(link));
  }
  CHECK(tasks.said.empty());
  CHECK(tasks.Beats(1) == Lines{Line(1, "x:0")});
  tasks.Serve(key, {edge});
  CHECK(run.WaitReceived(edge, {&got}).ok());
  tasks.worker.rendezvous->Leave(key);
}

TEST_CASE("a thread that waits is named, too") {
  const Watchdog watchdog;
  Pair tasks;
  const RunKey key = tasks.NewRun();
  sluice::Exchange& run = tasks.Join(key);
  const Edge edge = Value(0, "x:0");
  int32_t got = 0;
  CHECK(run.StartReceive(edge, {&got}).ok());
  CHECK(tasks.worker.rendezvous->seconds() == 0);
  std::thread server([&] {  // sends when that has been said
    while (tasks.Beats(1).empty()) std::this_thread::yield();
    tasks.Serve(key, {edge});
  });
  CHECK(run.WaitReceived(edge, {&got}).ok());
  server.join();
  CHECK(tasks.said == Lines{Line(1, "x:0")});
  CHECK(tasks.worker.rendezvous->seconds() > 0);
  tasks.worker.rendezvous->Leave(key);
}

// The peer has a place for it, and takes nothing.
TEST_CASE("a send that is not taken is named, too") {
  const Watchdog watchdog;
  BothEnds wires = Connect(false);
  Lines said;
  TestTask worker(
      std::move(wires.one), "/job:ps/task:0", kOther, std::chrono::seconds(30),
      std::make_shared<LinkedRendezvous>(
          0, nullptr, "/job:worker/task:2",
          StallNotes{milliseconds(1000), [&said](std::string_view line) {
                       said.emplace_back(line);
                     }}));
  const RunKey key = worker.rendezvous->NewRun();
  sluice::Exchange& run = **worker.rendezvous->Join(key, 1, 1, kNever);
  Edge edge = EdgeOf(0, size_t{64} << 20);
  edge.name = "/job:worker/task:2/cpu:0;/job:ps/task:0/cpu:0;fc1/gradient:0";
  const std::vector<std::byte> value(edge.bytes);
  CHECK(run.StartSend(edge, {const_cast<std::byte*>(value.data())}).ok());
  Frame want;
  want.kind = FrameKind::kWant;
  want.run = key.run;
  want.key = edge.sender;
  want.rank = MarkOf(edge);
  std::array<std::byte, kFrameBytes> header;
  Encode(want, header);
  const std::array<Bytes, 1> pieces = {Bytes(header)};
  CHECK(wires.other.to.data.Send(pieces, After(std::chrono::seconds(5))).ok());
  Nobody nobody;
  while (run.Sent(edge, nobody)) std::this_thread::yield();
  auto now = Clock::now();
  const auto beats = [&](int count) {
    said.clear();
    for (int i = 0; i < count; ++i) {
      worker.rendezvous->Look(now += milliseconds(250));
    }
    return said;
  };
  CHECK(beats(5) ==
        Lines{"for 1 s /job:worker/task:2 has waited to send 'fc1/gradient:0' "
              "to /job:ps/task:0"});
  worker.rendezvous->Abort(key, Cancelled("enough"));
  CHECK(run.WaitSent(edge, {const_cast<std::byte*>(value.data())}).message() ==
        "enough");
  CHECK(beats(5).empty());
  CHECK(worker.rendezvous->seconds() > 0);
  worker.rendezvous->Leave(key);
}

TEST_CASE("waits at the same time count once") {
  const Watchdog watchdog;
  Pair tasks;
  Nobody nobody;
  const RunKey key = tasks.NewRun();
  sluice::Exchange& run = tasks.Join(key);
  const std::vector<Edge> edges = {Value(0, "a:0"), Value(1, "b:0"),
                                   Value(2, "c:0")};
  std::array<int32_t, 3> got{};
  const auto begin = Clock::now();
  for (size_t i = 0; i < edges.size(); ++i) {
    CHECK(run.StartReceive(edges[i], {&got[i]}).ok());
    CHECK_FALSE(run.Received(edges[i], nobody));
  }
  constexpr std::chrono::duration<double> kHeld(0.03);
  std::this_thread::sleep_for(kHeld);
  tasks.Serve(key, edges);
  for (size_t i = 0; i < edges.size(); ++i) {
    CHECK(run.WaitReceived(edges[i], {&got[i]}).ok());
  }
  const std::chrono::duration<double> passed = Clock::now() - begin;
  const double waited = tasks.worker.rendezvous->seconds();
  CHECK(waited >= kHeld.count());
  CHECK(waited <= passed.count());
  tasks.worker.rendezvous->Leave(key);
}

}  // namespace
}  // namespace sluice::dist::testing
