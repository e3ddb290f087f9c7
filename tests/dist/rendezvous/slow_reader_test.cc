// A peer that lives and reads nothing: what waits for it stays within bounds.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/rendezvous/link.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "tests/dist/rendezvous/tasks.h"
#include "tests/support/await.h"

namespace sluice::dist::testing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr size_t kMiB = size_t{1} << 20;

Frame FrameOfBytes(FrameKind kind, size_t bytes) {
  Frame frame;
  frame.kind = kind;
  frame.bytes = bytes;
  return frame;
}

// Answers each call with just under 1 MiB.
class Answers final : public Link::Owner {
 public:
  Answers(WirePair wires, milliseconds timeout)
      : link(std::make_shared<Link>(std::move(wires), "the actor", timeout,
                                    *this)) {
    ThrowIfError(link->Start());
  }
  ~Answers() { link->Stop(); }
  Status Take(Link& from, const Frame& frame) override {
    SLUICE_RETURN_IF_ERROR(from.Drop(frame.bytes));
    Frame answer = FrameOfBytes(FrameKind::kAnswer, kMiB - 100);
    answer.run = ++answered;
    from.Post(answer, std::vector<std::byte>(answer.bytes));
    return {};
  }
  void Ended(Link&, const Status& why) override { ended = why; }

  const std::shared_ptr<Link> link;
  std::atomic<uint64_t> answered{0};
  Status ended;  // by the link's thread
};

// Says calls, as many as there is room for.
size_t Ask(Socket& out, int calls) {
  std::array<std::byte, kFrameBytes> header;
  Encode(FrameOfBytes(FrameKind::kCall, 0), header);
  size_t asked = 0;
  for (int i = 0; i < calls; ++i, ++asked) {
    if (!out.Send(Bytes(header), After(milliseconds(200))).ok()) break;
  }
  return asked;
}

TEST_CASE("who asks and does not read is heard again when it does") {
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    BothEnds wires = Connect(shared);
    Answers task(std::move(wires.one), std::chrono::seconds(20));
    struct Reader final : Link::Owner {
      Status Take(Link& from, const Frame& frame) override {
        while (!reads.load()) std::this_thread::sleep_for(milliseconds(1));
        CHECK(frame.run == ++heard);  // in their order
        return from.Drop(frame.bytes);
      }
      void Ended(Link&, const Status&) override {}
      std::atomic<bool> reads{false};
      std::atomic<uint64_t> heard{0};
    } reader;
    Link asks(std::move(wires.other), "the task", std::chrono::seconds(20),
              reader);
    ThrowIfError(asks.Start());
    for (int i = 0; i < 200; ++i) {
      asks.Post(FrameOfBytes(FrameKind::kCall, 0));
    }
    size_t most = 0;
    sluice::testing::AwaitTrue([&] {
      most = std::max(most, task.link->queued());
      return most > 14 * kMiB;
    });
    for (uint64_t seen = 0, still = 0; still < 200; ++still) {
      std::this_thread::sleep_for(milliseconds(1));
      most = std::max(most, task.link->queued());
      if (task.answered.load() != seen) still = 0;
      seen = task.answered.load();
    }
    CHECK(most < 18 * kMiB);
    CHECK(task.answered.load() < 60);  // and the system has its buffers
    reader.reads.store(true);
    while (reader.heard.load() < 200) {
      REQUIRE(task.link->status().ToString() == "ok");
      std::this_thread::sleep_for(milliseconds(1));
    }
    sluice::testing::AwaitTrue([&] { return task.link->queued() == 0; });
    asks.Stop();
  }
}

TEST_CASE("who asks and never reads is gone after the peer timeout") {
  BothEnds wires = Connect(false);
  Answers task(std::move(wires.one), milliseconds(700));
  const auto begin = Clock::now();
  (void)Ask(wires.other.to.data, 100);
  while (task.link->status().ok()) {  // it pings
    std::array<std::byte, kFrameBytes> ping;
    Encode(FrameOfBytes(FrameKind::kPing, 0), ping);
    (void)wires.other.to.data.Send(Bytes(ping), After(milliseconds(50))).ok();
    std::this_thread::sleep_for(milliseconds(50));
    REQUIRE(Clock::now() - begin < std::chrono::seconds(30));
  }
  const Status why = task.link->status();
  CAPTURE(why.ToString());
  CHECK(why.code() == Code::kDeadlineExceeded);
  CHECK(why.message().starts_with("the actor takes none of "));
  CHECK(task.link->queued() == 0);
}

// While `body` runs the actor pings, and reads nothing.
void WhilePinging(Actor& actor, const std::function<void()>& body) {
  std::atomic<bool> over{false};
  std::thread pings([&] {
    while (!over.load()) {
      actor.Say(FrameOfBytes(FrameKind::kPing, 0));
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  body();
  over.store(true);
  pings.join();
}

TEST_CASE("what aborted and late runs have sent does not wait for ever") {
  for (const bool aborted : {false, true}) {
    CAPTURE(aborted);
    Actor actor;
    LinkedRendezvous& mine = *actor.task->rendezvous;
    const Edge edge = EdgeOf(0, 16 * kMiB), waits = EdgeOf(1, 1, false);
    size_t most = 0;
    WhilePinging(actor, [&] {
      for (int i = 0; i < 12; ++i) {
        const RunKey key = mine.NewRun();
        const auto soon = Clock::now() + (aborted ? std::chrono::seconds(20)
                                                  : milliseconds(150));
        sluice::Exchange& run = **mine.Join(key, 2, 1, soon);
        std::vector<std::byte> data(edge.bytes);
        std::byte got{};
        // One half leaves from a copy of its own.
        const bool copied = i % 2 == 0;
        const auto want = [&] {
          actor.Say(actor.About(FrameKind::kWant, key, edge));
          actor.AwaitHeard();
        };
        if (!copied) want();
        CHECK(run.StartSend(edge, {data.data()}).ok());
        if (copied) {
          CHECK(run.WaitSent(edge, {data.data()}).ok());
          want();
        }
        CHECK(run.StartReceive(waits, {&got}).ok());
        if (aborted) mine.Abort(key, OutOfRange("planted"));
        const Status sent =
            copied ? Status() : run.WaitSent(edge, {data.data()});
        const Status received = run.WaitReceived(waits, {&got});
        CHECK_FALSE(received.ok());
        if (!copied) {
          CHECK(sent.code() ==
                (aborted ? Code::kOutOfRange : Code::kDeadlineExceeded));
        }
        if (!aborted) mine.Abort(key, received);  // as its step does
        mine.Leave(key);
        most = std::max(most, actor.task->link->queued());
      }
      CHECK(actor.task->link->status().ToString() == "ok");
    });
    CHECK(most < 20 * kMiB);  // the one that has begun to leave
  }
}

TEST_CASE("aborts that nobody reads end the link") {
  Actor actor(std::chrono::seconds(60));
  LinkedRendezvous& mine = *actor.task->rendezvous;
  size_t most = 0;
  int runs = 0;
  WhilePinging(actor, [&] {
    std::byte data{};
    const Edge edge = EdgeOf(0, 1, /*to_other=*/false);
    for (; actor.task->link->status().ok() && runs < 200'000; ++runs) {
      const RunKey key = mine.NewRun();
      sluice::Exchange& run = **mine.Join(key, 1, 1, Clock::time_point::max());
      (void)run.StartReceive(edge, {&data}).ok();
      mine.Abort(key, OutOfRange(std::string(1500, 'x')));
      mine.Leave(key);
      if (runs % 100 == 0) most = std::max(most, actor.task->link->queued());
    }
  });
  const Status why = actor.task->link->status();
  CAPTURE(why.ToString());
  CHECK(why.code() == Code::kResourceExhausted);
  CHECK(most > 60 * kMiB);
  CHECK(most < 66 * kMiB);
  CHECK(runs > 20'000);
}

TEST_CASE("calls wait for those before them") {
  Actor actor;
  std::atomic<int> posted{0};
  WhilePinging(actor, [&] {
    std::thread calls([&] {
      for (int i = 0; i < 20; ++i, ++posted) {
        actor.task->link->PostCall(FrameOfBytes(FrameKind::kCall, 16 * kMiB),
                                   std::vector<std::byte>(16 * kMiB));
      }
    });
    sluice::testing::AwaitTrue([&] { return posted.load() >= 4; });
    std::this_thread::sleep_for(milliseconds(300));
    CHECK(posted.load() <= 7);
    CHECK(actor.task->link->queued() < 100 * kMiB);
    actor.task->link->End(Cancelled("enough"));
    calls.join();
  });
}

}  // namespace
}  // namespace sluice::dist::testing
