// Runs that other tasks speak of before a part here has joined: what of them is
// kept, and for how long.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/frame.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "tests/dist/rendezvous/tasks.h"
#include "tests/support/error_text.h"
#include "tests/support/watchdog.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;
using sluice::testing::Watchdog;
constexpr auto kNever = std::chrono::steady_clock::time_point::max();
// More than are remembered.
constexpr size_t kManyRuns = 2200;

// Leaves the core to the thread that is waited for.
void Rest() {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

struct Pair {
  BothEnds wires = Connect(false);
  TestTask one{std::move(wires.one), "other", kOther};
  TestTask other{std::move(wires.other), "one", kOne};
};

TEST_CASE("an abort reaches a task whose part joins later") {
  const Watchdog watchdog;
  Pair tasks;
  const RunKey key = tasks.one.rendezvous->NewRun();
  sluice::Exchange& run = **tasks.one.rendezvous->Join(key, 2, 1, kNever);
  std::byte data{};
  const Edge edge = EdgeOf(0, 1, /*to_other=*/false);
  CHECK(run.StartReceive(edge, {&data}).ok());
  tasks.one.rendezvous->Abort(key, Cancelled("enough"));
  CHECK(run.WaitReceived(edge, {&data}).message() == "enough");
  tasks.one.rendezvous->Leave(key);
  while (tasks.other.rendezvous->runs() == 0) Rest();
  sluice::Exchange& late = **tasks.other.rendezvous->Join(key, 2, 1, kNever);
  const Edge never = EdgeOf(1, 1);
  CHECK(late.StartReceive(never, {&data}).ok());
  CHECK(late.WaitReceived(never, {&data}).message() == "enough");
  tasks.other.rendezvous->Leave(key);
}

// As of a run that fails while tasks are told one after the other that it is
// to begin. What they hear of it before it begins there is kept like a want.
TEST_CASE("an abort reaches a task that the run needs only afterwards") {
  const Watchdog watchdog;
  Pair tasks;
  LinkedRendezvous& mine = *tasks.one.rendezvous;
  LinkedRendezvous& theirs = *tasks.other.rendezvous;
  RunKey key;
  for (size_t i = 0; i < kManyRuns; ++i) {
    key = mine.NewRun();
    mine.Abort(key, Cancelled("enough"));
    const Status needed = mine.Needs(key, tasks.one.link);
    CHECK(needed.code() == Code::kCancelled);
    CHECK(needed.message() == "enough");
    mine.Release(key);
  }
  CHECK(mine.runs() == 0);
  std::byte data{};
  const Edge edge = EdgeOf(0, 1);
  sluice::Exchange& late = **theirs.Join(key, 1, 1, kNever);
  CHECK(late.StartReceive(edge, {&data}).ok());
  const Status told = late.WaitReceived(edge, {&data});
  CHECK(told.code() == Code::kCancelled);
  CHECK(told.message() == "enough");
  theirs.Leave(key);
  CHECK(theirs.runs() < kManyRuns);  // the oldest are forgotten
}

// One that comes before the run has begun here.
TEST_CASE("an early want for an edge that the step has not is an error") {
  const Watchdog watchdog;
  Pair tasks;
  LinkedRendezvous& mine = *tasks.one.rendezvous;
  LinkedRendezvous& theirs = *tasks.other.rendezvous;
  const RunKey key = mine.NewRun(), next = mine.NewRun();
  const Edge edge = EdgeOf(1, 1), sound = EdgeOf(0, 1);
  const std::byte sent{7};
  std::byte never{}, data{};
  sluice::Exchange& run = **theirs.Join(key, 2, 1, kNever);
  CHECK(run.StartReceive(edge, {&never}).ok());
  // It has been heard when what is behind it has.
  sluice::Exchange& behind = **theirs.Join(next, 1, 1, kNever);
  CHECK(behind.StartReceive(sound, {&data}).ok());
  while (mine.runs() < 2) Rest();
  for (int part = 0; part < 2; ++part) {
    CAPTURE(part);
    const Status status = mine.Join(key, 1, 2, kNever).status();
    CHECK(status.code() == Code::kFailedPrecondition);
    CHECK(status.message() ==
          "this task and other run different steps: edge 1 is wanted of 1 "
          "here");
    mine.Abort(key, status);  // as the step does
  }
  // Both hear of it, and no other run is ended.
  CHECK(run.WaitReceived(edge, {&never}).code() == Code::kFailedPrecondition);
  theirs.Leave(key);
  CHECK(Send(**mine.Join(next, 1, 1, kNever), sound, &sent).ok());
  CHECK(behind.WaitReceived(sound, {&data}).ok());
  CHECK(data == sent);
  mine.Leave(next);
  theirs.Leave(next);
}

// Of a task whose order is held up, while others go on.
TEST_CASE("a run that begins late has what was wanted of it long before") {
  const Watchdog watchdog(std::chrono::minutes(3));
  const std::byte sent{7};
  std::byte first{}, data{};
  Pair tasks;
  LinkedRendezvous& mine = *tasks.one.rendezvous;
  LinkedRendezvous& theirs = *tasks.other.rendezvous;
  const Edge edge = EdgeOf(0, 1);
  const RunKey late = mine.NewRun();
  sluice::Exchange& waits = **theirs.Join(late, 1, 1, kNever);
  CHECK(waits.StartReceive(edge, {&first}).ok());
  // Each is wanted before it begins, too.
  for (size_t i = 0; i < kManyRuns; ++i) {
    const RunKey key = mine.NewRun();
    sluice::Exchange& run = **theirs.Join(key, 1, 1, kNever);
    CHECK(run.StartReceive(edge, {&data}).ok());
    while (mine.runs() < 2) Rest();
    CHECK(Send(**mine.Join(key, 1, 1, kNever), edge, &sent).ok());
    mine.Leave(key);
    CHECK(run.WaitReceived(edge, {&data}).ok());
    theirs.Leave(key);
    while (mine.runs() > 1) Rest();
  }
  CHECK(Send(**mine.Join(late, 1, 1, kNever), edge, &sent).ok());
  mine.Leave(late);
  CHECK(waits.WaitReceived(edge, {&first}).ok());
  CHECK(first == sent);
  theirs.Leave(late);
}

TEST_CASE("of too many runs that have not begun the oldest end, in words") {
  const Watchdog watchdog;
  const std::byte sent{7};
  std::vector<std::byte> data(kManyRuns);
  Pair tasks;
  LinkedRendezvous& mine = *tasks.one.rendezvous;
  LinkedRendezvous& theirs = *tasks.other.rendezvous;
  const Edge edge = EdgeOf(0, 1);
  std::vector<RunKey> keys;
  std::vector<sluice::Exchange*> runs;
  for (std::byte& byte : data) {
    keys.push_back(mine.NewRun());
    runs.push_back(*theirs.Join(keys.back(), 1, 1, kNever));
    CHECK(runs.back()->StartReceive(edge, {&byte}).ok());
  }
  const Status oldest = runs.front()->WaitReceived(edge, {data.data()});
  CHECK(oldest.code() == Code::kResourceExhausted);
  CHECK(Contains(oldest.message(), "was given up: it has not begun here"));
  // The newest is a run like any.
  CHECK(Send(**mine.Join(keys.back(), 1, 1, kNever), edge, &sent).ok());
  CHECK(runs.back()->WaitReceived(edge, {&data.back()}).ok());
  CHECK(data.back() == sent);
}

TEST_CASE("wants of runs that have not begun have a most") {
  const Watchdog watchdog;
  constexpr uint64_t kMost = uint64_t{1} << 20;
  Actor actor;
  LinkedRendezvous& mine = *actor.task->rendezvous;
  const RunKey key = mine.NewRun();
  const auto say = [&](uint64_t begin, uint64_t end) {
    std::vector<std::byte> frames((end - begin) * kFrameBytes);
    Frame frame = actor.About(FrameKind::kWant, key, EdgeOf(0, 1));
    for (uint64_t i = begin; i < end; ++i) {
      // Half of them of the next run.
      frame.run = key.run + i % 2;
      frame.count = i / 2;
      Encode(frame, std::span(frames)
                        .subspan((i - begin) * kFrameBytes)
                        .first<kFrameBytes>());
    }
    CHECK(actor.out.Send(Bytes(frames), After(std::chrono::seconds(40))).ok());
  };
  say(0, kMost);
  // The last has been heard when what is behind it has.
  Frame abort = actor.About(FrameKind::kAbort, key, EdgeOf(0, 1));
  abort.run = key.run + 5;
  abort.count = 1;
  actor.Say(abort);
  while (mine.runs() < 3) Rest();
  CHECK(actor.task->link->status().ToString() == "ok");
  say(kMost, kMost + 1);
  abort.run = key.run + 6;
  actor.Say(abort);
  while (mine.runs() < 4) Rest();
  // That run has ended, the other has not.
  constexpr int kEdges = kMost / 2 + 1;
  sluice::Exchange& ended = **mine.Join(key, kEdges, 1, kNever);
  std::byte data{};
  CHECK(Receive(ended, EdgeOf(0, 1, false), &data).code() ==
        Code::kResourceExhausted);
  sluice::Exchange& sound =
      **mine.Join({key.epoch, key.run + 1}, kEdges, 1, kNever);
  CHECK(Send(sound, EdgeOf(0, 1), &data).ok());
}

}  // namespace
}  // namespace sluice::dist::testing
