// Tensors from task to task: in any order of readiness, of any size, through
// either transport; aborts, ends and nonsense.
#include "dist/rendezvous/linked_rendezvous.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/dist/collective/ranks.h"
#include "tests/dist/rendezvous/tasks.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::RandomBuffer;
using sluice::testing::Rounds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr auto kNever = Clock::time_point::max();

struct Pair {
  explicit Pair(bool shared, BothEnds wires)
      : one(std::move(wires.one), "other", kOther),
        other(std::move(wires.other), "one", kOne) {
    CHECK(one.link->shared() == shared);
  }
  explicit Pair(bool shared) : Pair(shared, Connect(shared)) {}
  TestTask one, other;
};

// Of an edge of which some may come, in the run of that seed.
size_t SentBytes(const Edge& edge, uint32_t seed) {
  const auto number = static_cast<uint32_t>(edge.number);
  return edge.some ? edge.bytes * (1 + seed * 7 + number) % (edge.bytes + 1)
                   : edge.bytes;
}

TEST_CASE("what is sent arrives, whoever comes first") {
  const Watchdog watchdog;
  for (const bool shared : {false, true}) {
    Pair tasks(shared);
    for (const size_t bytes : {0, 1, 4096, 65537, 9'000'001}) {
      for (const bool sender_first : {true, false}) {
        CAPTURE(shared);
        CAPTURE(bytes);
        CAPTURE(sender_first);
        const Edge edge = EdgeOf(1, bytes);
        const RunKey key = tasks.one.rendezvous->NewRun();
        std::vector<std::byte> sent = RandomBuffer(7, bytes), got(bytes);
        const std::vector<std::byte> wanted = sent;
        const auto send = [&] {
          sluice::Exchange& run =
              **tasks.one.rendezvous->Join(key, 2, 1, kNever);
          CHECK(Send(run, edge, sent.data()).ok());
          std::fill(sent.begin(), sent.end(), std::byte{0});
          tasks.one.rendezvous->Leave(key);  // the other may not have begun
        };
        if (sender_first) send();
        sluice::Exchange& run =
            **tasks.other.rendezvous->Join(key, 2, 1, kNever);
        CHECK(run.StartReceive(edge, {got.data()}).ok());
        if (!sender_first) send();
        CHECK(run.WaitReceived(edge, {got.data()}).ok());
        tasks.other.rendezvous->Leave(key);
        CHECK(got == wanted);
      }
    }
    while (tasks.one.rendezvous->runs() > 0) std::this_thread::yield();
    CHECK(tasks.other.rendezvous->runs() == 0);
  }
}

TEST_CASE("many edges both ways, some runs aborted anywhere") {
  const Watchdog watchdog;
  constexpr int kEdges = 12;
  int whole = 0, ended = 0;
  for (const bool shared : {false, true}) {
    Pair tasks(shared);
    for (uint32_t seed = 1; seed <= Rounds(150u); ++seed) {
      std::mt19937 random(seed);
      std::vector<Edge> edges;
      for (int i = 0; i < kEdges; ++i) {
        edges.push_back(EdgeOf(i, random() % (random() % 8 ? 5'000 : 300'000),
                               random() % 2 == 0));
        edges.back().some = random() % 3 == 0;
      }
      REQUIRE(tasks.one.link->status().ToString() == "ok");
      REQUIRE(tasks.other.link->status().ToString() == "ok");
      const RunKey key = tasks.one.rendezvous->NewRun();
      const int abort_by = seed % 3 == 0 ? static_cast<int>(random() % 2) : -1;
      const auto part = [&](TestTask& task, int who) {
        std::mt19937 mine(seed * 2 + static_cast<uint32_t>(who));
        std::vector<Edge> order = edges;  // sends are waited for in any order
        std::shuffle(order.begin(), order.end(), mine);
        sluice::Exchange& run = **task.rendezvous->Join(key, kEdges, 1, kNever);
        std::vector<std::vector<std::byte>> memory(kEdges);
        for (const Edge& edge : order) {
          auto& bytes = memory[static_cast<size_t>(edge.number)];
          const bool sends = edge.sender == (who == 0 ? kOne : kOther);
          bytes = sends ? RandomBuffer(seed + 1, edge.bytes)
                        : RandomBuffer(0, edge.bytes);
          Edge sent = edge;
          sent.bytes = SentBytes(edge, seed);
          CHECK((sends ? run.StartSend(sent, {bytes.data()})
                       : run.StartReceive(edge, {bytes.data()}))
                    .ok());
          if (abort_by == who && mine() % 6 == 0) {
            task.rendezvous->Abort(key, OutOfRange("planted"));
          }
        }
        if (abort_by == who) {
          task.rendezvous->Abort(key, OutOfRange("planted"));
        }
        Status status;
        std::shuffle(order.begin(), order.end(), mine);
        for (const Edge& edge : order) {
          auto& bytes = memory[static_cast<size_t>(edge.number)];
          const bool sends = edge.sender == (who == 0 ? kOne : kOther);
          const Status waited = sends ? run.WaitSent(edge, {bytes.data()})
                                      : run.WaitReceived(edge, {bytes.data()});
          if (waited.ok() && !sends) {
            CHECK(run.ReceivedBytes(edge) == SentBytes(edge, seed));
            bytes.resize(SentBytes(edge, seed));
            CHECK(bytes == RandomBuffer(seed + 1, bytes.size()));
          }
          if (!waited.ok()) status = waited;
          // Whatever came of it, nobody touches it any more.
          std::fill(bytes.begin(), bytes.end(), std::byte{0x5a});
        }
        std::this_thread::sleep_for(std::chrono::microseconds(mine() % 300));
        for (const auto& bytes : memory) {
          CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) {
            return byte == std::byte{0x5a};
          }));
        }
        task.rendezvous->Leave(key);
        CHECK((status.ok() || (abort_by >= 0 && status.message() == "planted" &&
                               status.code() == Code::kOutOfRange)));
        return status.ok();
      };
      bool other_whole = false;
      std::thread other([&] { other_whole = part(tasks.other, 1); });
      const bool one_whole = part(tasks.one, 0);
      other.join();
      if (abort_by < 0) CHECK((one_whole && other_whole));
      (one_whole && other_whole ? whole : ended) += 1;
    }
    // Late frames of aborted runs may be remembered, within a limit.
    CHECK(tasks.one.rendezvous->runs() <= 60);
  }
  MESSAGE(whole << " runs whole, " << ended << " aborted");
  CHECK(whole >= Rounds(200));
  CHECK(ended >= Rounds(60));
}

TEST_CASE("the end of a task ends what needs it, by name, and nothing else") {
  const Watchdog watchdog;
  for (const bool shared : {false, true}) {
    Pair tasks(shared);
    LinkedRendezvous& mine = *tasks.one.rendezvous;
    const RunKey needs = mine.NewRun(), needs_not = mine.NewRun();
    sluice::Exchange& run = **mine.Join(needs, 1, 1, kNever);
    sluice::Exchange& alone = **mine.Join(needs_not, 1, 2, kNever);
    CHECK(*mine.Join(needs_not, 1, 2, kNever) == &alone);
    std::byte data{1}, got{};
    const Edge edge = EdgeOf(0, 1, /*to_other=*/false);
    CHECK(run.StartReceive(edge, {&data}).ok());
    tasks.other.link->End(Cancelled("gone"));
    const Status ended = run.WaitReceived(edge, {&data});
    CHECK(ended.code() == Code::kUnavailable);
    CHECK(ended.message() == "other has closed the connection");
    const Edge inner = {0, 5, 6, 1, "inner"};
    CHECK(Send(alone, inner, &data).ok());
    CHECK(Receive(alone, inner, &got).ok());
    CHECK(got == data);
    mine.Leave(needs);
    mine.Leave(needs_not);
    mine.Leave(needs_not);
    // From then on it is an error at once.
    const RunKey later = mine.NewRun();
    sluice::Exchange& next = **mine.Join(later, 1, 1, kNever);
    CHECK(next.StartReceive(edge, {&data}).message() == ended.message());
    mine.Leave(later);
    CHECK(mine.runs() == 0);
  }
}

TEST_CASE("a peer that reads nothing gets its sender's memory back to it") {
  const Watchdog watchdog(std::chrono::minutes(2));
  Actor actor;
  LinkedRendezvous& mine = *actor.task->rendezvous;
  const RunKey key = mine.NewRun();
  const Edge edge = EdgeOf(0, size_t{64} << 20);
  sluice::Exchange& run =
      **mine.Join(key, 1, 1, Clock::now() + milliseconds(300));
  std::vector<std::byte> data(edge.bytes);
  CHECK(run.StartSend(edge, {data.data()}).ok());
  actor.Say(actor.About(FrameKind::kWant, key, edge));
  actor.AwaitHeard();  // it is under way
  const auto begin = Clock::now();
  // Before the link has ended.
  CHECK(run.WaitSent(edge, {data.data()}).message() ==
        "the step's deadline passed in a send");
  // The sanitizer sees who reads it still.
  data = std::vector<std::byte>();
  mine.Leave(key);
  // It is silent, too, which ends the link in time.
  CHECK(actor.task->AwaitEnd().code() == Code::kDeadlineExceeded);
  CHECK(Clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("another size or sender than the edge's is an error") {
  const Watchdog watchdog;
  for (const bool size : {true, false}) {
    Actor actor;
    LinkedRendezvous& mine = *actor.task->rendezvous;
    const RunKey key = mine.NewRun();
    const Edge edge = EdgeOf(0, 100, /*to_other=*/false);
    sluice::Exchange& run = **mine.Join(key, 1, 1, kNever);
    std::vector<std::byte> data(100), sent(size ? 101 : 100, std::byte{1});
    CHECK(run.StartReceive(edge, {data.data()}).ok());
    Frame frame = actor.About(FrameKind::kTensor, key, edge);
    frame.bytes = sent.size();
    if (!size) frame.key ^= 1;
    actor.Say(frame, sent);
    CHECK(run.WaitReceived(edge, {data.data()}).code() == Code::kDataLoss);
    CHECK(data == std::vector<std::byte>(100));
    mine.Leave(key);
    CHECK(actor.task->link->status().ok());  // the rest of the link is sound
  }
}

// Of tasks that each have cut a step for itself.
TEST_CASE("a want by another name than the edge's is an error") {
  const Watchdog watchdog;
  Actor actor;
  LinkedRendezvous& mine = *actor.task->rendezvous;
  const RunKey key = mine.NewRun();
  const Edge edge = EdgeOf(0, 100);
  Edge other = edge;
  other.name = "another";
  other.mark = static_cast<uint32_t>(Key(other.name));
  sluice::Exchange& run = **mine.Join(key, 1, 1, kNever);
  actor.Say(actor.About(FrameKind::kWant, key, other));
  std::vector<std::byte> data(100);
  Status status = run.StartSend(edge, {data.data()});
  while (status.ok()) status = run.WaitSent(edge, {data.data()});
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(status.message() ==
        "this task and the actor run different steps: edge 0, 'e0' here, is "
        "another one there");
  mine.Leave(key);
  CHECK(actor.task->link->status().ok());  // the rest of the link is sound
}

TEST_CASE("of an edge of which some may come, more is an error") {
  const Watchdog watchdog;
  for (const size_t bytes : {0, 1, 99, 100, 101, 5000}) {
    CAPTURE(bytes);
    Actor actor;
    LinkedRendezvous& mine = *actor.task->rendezvous;
    const RunKey key = mine.NewRun();
    Edge edge = EdgeOf(0, 100, /*to_other=*/false);
    edge.some = true;
    sluice::Exchange& run = **mine.Join(key, 1, 1, kNever);
    std::vector<std::byte> data(100, std::byte{2}), sent(bytes, std::byte{1});
    CHECK(run.StartReceive(edge, {data.data()}).ok());
    Frame frame = actor.About(FrameKind::kTensor, key, edge);
    frame.bytes = bytes;
    actor.Say(frame, sent);
    const Status waited = run.WaitReceived(edge, {data.data()});
    const bool fits = bytes <= data.size();
    CHECK(waited.code() == (fits ? Code::kOk : Code::kDataLoss));
    if (fits) CHECK(run.ReceivedBytes(edge) == bytes);
    for (size_t i = 0; i < data.size(); ++i) {
      CHECK(data[i] == std::byte{fits && i < bytes ? uint8_t{1} : uint8_t{2}});
    }
    mine.Leave(key);
    CHECK(actor.task->link->status().ok());  // the rest of the link is sound
  }
}

TEST_CASE("whatever frames come, it ends in time and harms nothing") {
  const Watchdog watchdog;
  int ended = 0;
  for (uint32_t seed = 1; seed <= Rounds(200u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Actor actor;
    LinkedRendezvous& mine = *actor.task->rendezvous;
    const RunKey key = mine.NewRun();
    Edge in = EdgeOf(0, 64, false);
    in.some = seed % 2 == 0;
    const Edge out = EdgeOf(1, 64);
    sluice::Exchange& run =
        **mine.Join(key, 2, 1, Clock::now() + milliseconds(40));
    std::vector<std::byte> data(64), sent(64);
    CHECK(run.StartReceive(in, {data.data()}).ok());
    CHECK(run.StartSend(out, {sent.data()}).ok());
    for (int i = 0; i < 12; ++i) {
      Frame frame = actor.About(
          static_cast<FrameKind>(
              random() % 4 == 0
                  ? 1 + random() % kNumFrameKinds
                  : static_cast<unsigned>(FrameKind::kTensor) + random() % 4),
          key, random() % 2 ? in : out);
      if (random() % 4 == 0) frame.run += random() % 3;
      if (random() % 4 == 0) frame.epoch = random() % 2;
      if (random() % 4 == 0) frame.key = random();
      if (random() % 4 == 0) frame.count = random() % 2 ? random() : ~0ull;
      const auto payload =
          RandomBuffer(seed, random() % 2 ? 64 : random() % 5000);
      frame.bytes = random() % 3 == 0 ? 0 : payload.size();
      actor.Say(frame, Bytes(payload).first(frame.bytes));
    }
    if (random() % 2 == 0) actor.out = Socket();
    (void)run.WaitReceived(in, {data.data()}).ok();
    (void)run.WaitSent(out, {sent.data()}).ok();
    mine.Leave(key);
    ended += !actor.task->link->status().ok();
  }
  CHECK(ended > Rounds(50));
}

TEST_CASE("ways to devices have a most") {
  Actor actor;
  LinkedRendezvous& mine = *actor.task->rendezvous;  // it has one
  std::vector<uint64_t> devices(65535);
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = 1000 + i;
  CHECK(mine.Reach(devices, actor.task->link).ok());
  const Status more = mine.Reach({1}, actor.task->link);
  CHECK(more.code() == Code::kResourceExhausted);
  mine.Forget(devices);
  CHECK(mine.ways() == 1);
  // As devices come and go.
  for (int turn = 0; turn < 7; ++turn) {
    devices.resize(10'000);
    for (uint64_t& device : devices) device += 100'000;
    CHECK(mine.Reach(devices, actor.task->link).ok());
    mine.Forget(devices);
  }
  CHECK(mine.ways() == 1);
  // To that which stayed, and to none of the others.
  const RunKey key = mine.NewRun();
  sluice::Exchange& run = **mine.Join(key, 2, 1, kNever);
  std::byte data{1};
  CHECK(run.StartSend(EdgeOf(0, 1), {&data}).ok());
  Edge other = EdgeOf(1, 1);
  other.receiver = devices[0];
  CHECK(run.StartSend(other, {&data}).code() == Code::kInternal);
  mine.Abort(key, Cancelled("done"));
  mine.Leave(key);
}

}  // namespace
}  // namespace sluice::dist::testing
