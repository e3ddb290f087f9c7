// What a rendezvous promises, of the one within a process and of the double
// that tests use.
#include "engine/runtime/rendezvous.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice {
namespace {

using testing::WildRendezvous;

constexpr auto kNever = Rendezvous::TimePoint::max();
constexpr int kEdges = 3;

std::vector<std::unique_ptr<Rendezvous>> All() {
  std::vector<std::unique_ptr<Rendezvous>> all;
  all.push_back(std::make_unique<LocalRendezvous>());
  all.push_back(std::make_unique<WildRendezvous>(WildRendezvous::Options{}));
  return all;
}

// One part's place in a run of two parts.
class Part {
 public:
  Part(Rendezvous& rendezvous, const RunKey& run,
       Rendezvous::TimePoint deadline = kNever)
      : rendezvous_(rendezvous), run_(run) {
    exchange_ =
        rendezvous.Join(run, kEdges, /*parts=*/2, deadline).ValueOrThrow();
  }
  ~Part() { rendezvous_.Leave(run_); }

  static Edge EdgeOf(int number) {
    return {number, 7, 8, number == 2 ? 0u : sizeof(int64_t), "edge"};
  }
  Status Send(int number, const int64_t& value) {
    return StartSend(number, value).ok() ? WaitSent(number, value)
                                         : Internal("not started");
  }
  Status StartSend(int number, const int64_t& value) {
    return exchange_->StartSend(EdgeOf(number), View(value));
  }
  Status WaitSent(int number, const int64_t& value) {
    return exchange_->WaitSent(EdgeOf(number), View(value));
  }
  Status StartReceive(int number, int64_t& value) {
    return exchange_->StartReceive(EdgeOf(number), {&value});
  }
  Status WaitReceived(int number, int64_t& value) {
    return exchange_->WaitReceived(EdgeOf(number), {&value});
  }
  Status Receive(int number, int64_t& value) {
    return StartReceive(number, value).ok() ? WaitReceived(number, value)
                                            : Internal("not started");
  }
  Exchange& exchange() { return *exchange_; }

 private:
  static DeviceView View(const int64_t& value) {
    return {const_cast<int64_t*>(&value)};
  }
  Rendezvous& rendezvous_;
  RunKey run_;
  Exchange* exchange_;
};

TEST_CASE("tensors arrive whole, whoever comes first") {
  for (const auto& rendezvous : All()) {
    for (int i = 0; i < 300; ++i) {
      CAPTURE(i);
      const RunKey run = rendezvous->NewRun();
      int64_t got[kEdges] = {-1, -1, -1};
      std::thread receiver([&] {
        Part part(*rendezvous, run);
        // Not in the order in which they are sent.
        CHECK(part.StartReceive(1, got[1]).ok());
        CHECK(part.StartReceive(0, got[0]).ok());
        CHECK(part.WaitReceived(1, got[1]).ok());
        CHECK(part.WaitReceived(0, got[0]).ok());
        CHECK(part.Receive(2, got[2]).ok());
      });
      {
        Part part(*rendezvous, run);
        int64_t value = i;
        CHECK(part.Send(0, value).ok());
        value = -7;         // the sender's again
        if (i % 50 == 0) {  // long enough for the receiver to sleep
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        int64_t other = i + 1000;
        CHECK(part.Send(1, other).ok());
        other = value;
        CHECK(part.Send(2, other).ok());
      }
      receiver.join();
      CHECK(got[0] == i);
      CHECK(got[1] == i + 1000);
      CHECK(got[2] == -1);  // an empty tensor
    }
  }
}

TEST_CASE("of some edges less may come, and never more") {
  constexpr size_t kMost = 100;
  for (const auto& rendezvous : All()) {
    for (const bool sender_first : {true, false}) {
      for (const size_t bytes : {0, 1, 64, 99, 100, 101}) {
        CAPTURE(sender_first);
        CAPTURE(bytes);
        const RunKey run = rendezvous->NewRun();
        const std::vector<char> sent(bytes, 's');
        std::vector<char> got(kMost, 'g');
        const Edge to = {1, 7, 8, kMost, "edge", /*some=*/true};
        Part receiver(*rendezvous, run), sender(*rendezvous, run);
        const auto send = [&] {
          const Edge from = {1, 7, 8, bytes, "edge"};
          const DeviceView view = {const_cast<char*>(sent.data())};
          CHECK(sender.exchange().StartSend(from, view).ok());
          CHECK(sender.exchange().WaitSent(from, view).ok());
        };
        if (sender_first) send();
        CHECK(receiver.exchange().StartReceive(to, {got.data()}).ok());
        if (!sender_first) send();
        const Status waited =
            receiver.exchange().WaitReceived(to, {got.data()});
        if (bytes > kMost) {
          CHECK(waited.code() == Code::kDataLoss);
          continue;
        }
        CHECK(waited.ok());
        CHECK(receiver.exchange().ReceivedBytes(to) == bytes);
        CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
      }
    }
  }
}

// Of the same thread: nobody could wait for the other.
TEST_CASE("a send waits neither for the receiver nor for its begin") {
  LocalRendezvous rendezvous;
  const RunKey first = rendezvous.NewRun(), second = rendezvous.NewRun();
  {
    Part early(rendezvous, second), part(rendezvous, first);
    CHECK(early.Send(0, 22).ok());
    CHECK(part.Send(0, 11).ok());
  }
  int64_t got = 0;
  Part part(rendezvous, first), later(rendezvous, second);
  CHECK(part.Receive(0, got).ok());
  CHECK(got == 11);
  CHECK(later.Receive(0, got).ok());
  CHECK(got == 22);
}

TEST_CASE("an abort ends present and coming waits of its run, and no other") {
  for (const auto& rendezvous : All()) {
    for (const int pause_ms : {0, 5}) {
      const RunKey aborted = rendezvous->NewRun(), other = rendezvous->NewRun();
      int64_t got = 0;
      Part goes_on(*rendezvous, other);
      CHECK(goes_on.StartReceive(0, got).ok());
      {
        Part part(*rendezvous, aborted);
        std::vector<std::thread> waiters;
        std::vector<Status> statuses(2);
        for (int i = 0; i < 2; ++i) {
          waiters.emplace_back([&, i] {
            int64_t value = 0;
            statuses[static_cast<size_t>(i)] = part.Receive(i, value);
          });
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        rendezvous->Abort(aborted, DataLoss("first"));
        rendezvous->Abort(aborted, Internal("second"));
        for (std::thread& waiter : waiters) waiter.join();
        for (const Status& status : statuses) {
          CHECK(status.code() == Code::kDataLoss);
          CHECK(status.message() == "first");
        }
        // Who joins later, too.
        Part late(*rendezvous, aborted);
        int64_t value = 0;
        CHECK(late.Receive(2, value).message() == "first");
      }
      Part sender(*rendezvous, other);
      CHECK(sender.Send(0, 5).ok());
      CHECK(goes_on.WaitReceived(0, got).ok());
      CHECK(got == 5);
    }
    // Before anybody has joined.
    const RunKey run = rendezvous->NewRun();
    rendezvous->Abort(run, DataLoss("before"));
    Part a(*rendezvous, run), b(*rendezvous, run);
    int64_t value = 0;
    CHECK(a.Receive(0, value).message() == "before");
    CHECK(b.Receive(1, value).message() == "before");
  }
}

TEST_CASE("a deadline ends a wait") {
  for (const auto& rendezvous : All()) {
    const RunKey run = rendezvous->NewRun();
    const auto soon =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    Part part(*rendezvous, run, soon), other(*rendezvous, run, soon);
    int64_t value = 0;
    CHECK(part.Receive(0, value).code() == Code::kDeadlineExceeded);
  }
}

TEST_CASE("an epoch ends the runs of the one before") {
  for (const auto& rendezvous : All()) {
    const RunKey old = rendezvous->NewRun(), unused = rendezvous->NewRun();
    {
      Part part(*rendezvous, old), other(*rendezvous, old);
      int64_t value = 0;
      CHECK(part.StartReceive(0, value).ok());
      rendezvous->BeginEpoch(3);
      CHECK(part.WaitReceived(0, value).code() == Code::kCancelled);
    }
    CHECK(rendezvous->Join(unused, kEdges, 2, kNever).status().code() ==
          Code::kFailedPrecondition);
    const RunKey run = rendezvous->NewRun();
    CHECK(run.epoch == 3);
    CHECK(run.run != unused.run);
    Part part(*rendezvous, run), other(*rendezvous, run);
    int64_t value = 0;
    CHECK(part.Send(1, 4).ok());
    CHECK(other.Receive(1, value).ok());
    CHECK(value == 4);
  }
}

TEST_CASE("what is of another size or sender is an error") {
  LocalRendezvous rendezvous;
  for (const bool receiver_first : {false, true}) {
    for (const Edge& wrong :
         {Edge{0, 7, 8, 4, "edge"}, Edge{0, 6, 8, 8, "edge"}}) {
      const RunKey run = rendezvous.NewRun();
      Part sender(rendezvous, run), receiver(rendezvous, run);
      int64_t value = 1, got = -1;
      if (receiver_first) CHECK(receiver.StartReceive(0, got).ok());
      CHECK(sender.exchange().StartSend(wrong, {&value}).ok());
      if (!receiver_first) CHECK(receiver.StartReceive(0, got).ok());
      const Status status = receiver.WaitReceived(0, got);
      CHECK(status.code() == Code::kDataLoss);
      CHECK(status.message().find("'edge'") != std::string::npos);
      CHECK(got == -1);
    }
  }
  const RunKey run = rendezvous.NewRun();
  Part part(rendezvous, run);
  CHECK_FALSE(rendezvous.Join(run, kEdges + 1, 2, kNever).ok());
  CHECK_FALSE(rendezvous.Join(run, kEdges, 3, kNever).ok());
  int64_t value = 0;
  CHECK_FALSE(part.exchange().StartSend({3, 7, 8, 8, "edge"}, {&value}).ok());
}

// Runs side by side, aborted at any moment. After a wait nobody may touch the
// bytes, whatever it returned.
TEST_CASE("buffers are their owner's after the wait") {
  for (const auto& rendezvous : All()) {
    std::vector<std::thread> pairs;
    std::atomic<int> arrived{0}, ended{0};
    for (uint32_t pair = 0; pair < 2; ++pair) {
      pairs.emplace_back([&, pair] {
        std::mt19937 random(pair);
        const auto pause = [&random] {
          const auto spins = random() % 2000;
          for (unsigned s = 0; s < spins; ++s)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        };
        for (int i = 0; i < 400; ++i) {
          const RunKey run = rendezvous->NewRun();
          const bool abort = random() % 2 == 0;
          const auto seed = random();
          std::thread receiver([&, seed] {
            std::mt19937 mine(seed);
            Part part(*rendezvous, run);
            int64_t got = -1;
            CHECK(part.StartReceive(0, got).ok());
            const Status status = part.WaitReceived(0, got);
            ++(status.ok() ? arrived : ended);
            CHECK(got == (status.ok() ? i : got));
            got = 99;
            for (int s = 0; s < 200; ++s) CHECK(got == 99);
          });
          pause();
          std::thread aborter([&] {
            if (abort) rendezvous->Abort(run, Cancelled("aborted"));
          });
          {
            Part part(*rendezvous, run);
            int64_t value = i;
            CHECK(part.StartSend(0, value).ok());
            pause();
            (void)part.WaitSent(0, value).ok();
            value = -1;
            aborter.join();  // before this part leaves
          }
          receiver.join();
        }
      });
    }
    for (std::thread& pair : pairs) pair.join();
    CHECK(arrived > 300);
    CHECK(arrived + ended == 800);
  }
}

// What Sent and Received promise, of a part that does not wait itself.
class Bell final : public Waker {
 public:
  void Wake() override { ++rung_; }
  int rung() const { return rung_; }
  void Await() const {
    while (rung_ == 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> rung_{0};
};

TEST_CASE("who asks is told when a wait would not wait") {
  for (const auto& rendezvous : All()) {
    REQUIRE(rendezvous->tells());
    for (int i = 0; i < 200; ++i) {
      const RunKey run = rendezvous->NewRun();
      Bell bell, unused;
      Part sender(*rendezvous, run), receiver(*rendezvous, run);
      int64_t value = i, got = -1, aborted = 0;
      REQUIRE(receiver.StartReceive(0, got).ok());
      REQUIRE(receiver.StartReceive(1, aborted).ok());
      std::thread other;
      const bool late = i % 2 == 0;
      if (late) {
        CHECK_FALSE(receiver.exchange().Received(Part::EdgeOf(0), bell));
        CHECK_FALSE(receiver.exchange().Received(Part::EdgeOf(0), bell));
        CHECK(bell.rung() == 0);
      }
      other = std::thread([&] { CHECK(sender.Send(0, value).ok()); });
      while (!receiver.exchange().Received(Part::EdgeOf(0), bell)) bell.Await();
      CHECK(receiver.WaitReceived(0, got).ok());
      CHECK(got == i);
      other.join();
      // And of an abort, present and past.
      Bell ended;
      const bool asked = i % 3 == 0;
      if (asked) {
        CHECK_FALSE(receiver.exchange().Received(Part::EdgeOf(1), ended));
      }
      rendezvous->Abort(run, DataLoss("the end"));
      if (asked) ended.Await();
      CHECK(receiver.exchange().Received(Part::EdgeOf(1), unused));
      CHECK(receiver.WaitReceived(1, aborted).message() == "the end");
      CHECK(unused.rung() == 0);
    }
  }
}

TEST_CASE("a wait after a question that nobody answered is as any other") {
  LocalRendezvous rendezvous;
  const RunKey run = rendezvous.NewRun();
  Part sender(rendezvous, run), receiver(rendezvous, run);
  int64_t got[2] = {0, 0};
  Bell first, second;
  for (const int edge : {0, 1}) {
    REQUIRE(receiver.StartReceive(edge, got[edge]).ok());
    Bell& bell = edge == 0 ? first : second;
    CHECK_FALSE(receiver.exchange().Received(Part::EdgeOf(edge), bell));
  }
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    CHECK(sender.Send(0, 5).ok());
    CHECK(sender.Send(1, 6).ok());
  });
  CHECK(receiver.WaitReceived(0, got[0]).ok());
  second.Await();
  CHECK(receiver.WaitReceived(1, got[1]).ok());
  other.join();
  CHECK(got[0] == 5);
  CHECK(got[1] == 6);
  CHECK(first.rung() == 0);  // its owner has waited itself
  CHECK(second.rung() == 1);
}

TEST_CASE("past the deadline nobody is told to wait") {
  for (const auto& rendezvous : All()) {
    const RunKey run = rendezvous->NewRun();
    const auto soon =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    Part part(*rendezvous, run, soon), other(*rendezvous, run, soon);
    int64_t value = 0;
    Bell bell;
    REQUIRE(part.StartReceive(0, value).ok());
    std::this_thread::sleep_until(soon);
    CHECK(part.exchange().Received(Part::EdgeOf(0), bell));
    CHECK(part.WaitReceived(0, value).code() == Code::kDeadlineExceeded);
  }
}

}  // namespace
}  // namespace sluice
