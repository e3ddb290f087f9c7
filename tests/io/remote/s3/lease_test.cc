// The lock of a folder in an object store: one holder at a time, whatever
// requests, answers and clocks do.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include "io/remote/s3/lease.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Below;
using testing::Contains;
using testing::ObjectStore;
using testing::Once;

constexpr seconds kLength(60);
constexpr char kPath[] = "s3://b/run/training.lock";

// The time of all in a test, the store's too.
struct World {
  void Pass(milliseconds time) {
    passed += time;
    store.SetClock(std::chrono::duration_cast<seconds>(passed).count());
  }
  ObjectStore store;
  milliseconds passed{0};
};

// A clock that is wrong by so much.
class SkewedClock : public Clock {
 public:
  SkewedClock(World& world, std::time_t skew) : world_(world), skew_(skew) {}
  std::chrono::steady_clock::time_point Now() override {
    return std::chrono::steady_clock::time_point() + world_.passed;
  }
  std::time_t Time() override {
    return start_ + skew_ +
           std::chrono::duration_cast<seconds>(world_.passed).count();
  }
  void Sleep(milliseconds time) override {
    world_.Pass(time);
    if (on_sleep) on_sleep();
  }
  std::function<void()> on_sleep;

 private:
  World& world_;
  const std::time_t skew_;
  const std::time_t start_ = std::time(nullptr);
};

// Before and behind each request something may happen, and the answer be lost.
class Interrupted : public HttpClient {
 public:
  Result<HttpResponse> Send(const HttpRequest& request) override {
    if (between) between();
    auto answer = client_->Send(request);
    if (between) between();
    if (lose && lose()) return Unavailable("the answer is lost");
    return answer;
  }
  std::function<void()> between;
  std::function<bool()> lose;

 private:
  const std::unique_ptr<HttpClient> client_ = MakeCurlClient().ValueOrThrow();
};

struct Actor {
  Actor(World& world, std::string named, std::time_t skew = 0)
      : clock(world, skew),
        retrier(http, clock, {.deadline = seconds(15)}),
        client(retrier, world.store.environment()),
        name(std::move(named)) {
    Fresh();
  }
  void Fresh() {
    lease = std::make_unique<Lease>(client, clock, kPath, name, kLength);
  }
  Status Acquire() {
    Status status = lease->Acquire(client);
    acquired = status.ok();
    return status;
  }
  bool Holds() {
    return acquired &&
           lease->IsCertain(lease->confirmed(), Lease::NowOf(clock));
  }

  SkewedClock clock;
  Interrupted http;
  Retrier retrier;
  S3Client client;
  const std::string name;
  std::unique_ptr<Lease> lease;
  bool acquired = false;
};

void CheckHeld(const Status& status, const std::string& by) {
  CHECK(status.code() == Code::kFailedPrecondition);
  CAPTURE(status.message());
  CHECK(Contains(status.message(), by));
}

TEST_CASE("lease: of two one has it, until he lets go") {
  World world;
  Actor a(world, "process 1 on a"), b(world, "process 2 on b");
  REQUIRE(a.Acquire().ok());
  CHECK(a.lease->warning().empty());
  CHECK(a.Holds());
  // Renewed while the other watches.
  b.clock.on_sleep = [&] { CHECK(a.lease->Renew().ok()); };
  CheckHeld(b.Acquire(), "process 1 on a, for ");
  b.clock.on_sleep = nullptr;
  a.lease->Release();
  CHECK_FALSE(world.store.Has("run/training.lock"));
  REQUIRE(b.Acquire().ok());
  CHECK(b.Holds());
}

TEST_CASE(
    "lease: of one that was killed it is taken over when it has run out") {
  for (const std::time_t skew : {-100'000, -50, 0, 50, 100'000}) {
    CAPTURE(skew);
    World world;
    Actor a(world, "process 1 on a"), b(world, "process 2 on b", skew);
    REQUIRE(a.Acquire().ok());
    const milliseconds begin = world.passed;
    REQUIRE(b.Acquire().ok());
    CHECK(world.passed - begin >= kLength);
    CHECK(world.passed - begin <= kLength + seconds(6));
    CHECK_FALSE(a.Holds());
    // The first is told, and its end removes nothing of the other's.
    CheckHeld(a.lease->Renew(), "process 2 on b");
    a.lease->Release();
    CHECK(world.store.Has("run/training.lock"));
    CHECK(b.lease->Renew().ok());
  }
}

// "...; if that has ended, this goes on within 58 s": 58.
int64_t SecondsOf(const std::string& line) {
  return std::stoll(line.substr(line.find("within ") + 7));
}

TEST_CASE("lease: who waits says for whom, and how long, every ten seconds") {
  for (const bool timeless : {false, true}) {
    CAPTURE(timeless);
    World world;
    world.store.SetTimeless(timeless);
    Actor a(world, "process 1\x1b[2J on a"), b(world, "process 2 on b");
    REQUIRE(a.Acquire().ok());
    world.Pass(seconds(7));
    const milliseconds begin = world.passed;
    std::vector<std::pair<milliseconds, std::string>> lines;
    REQUIRE(b.lease
                ->Acquire(b.client,
                          [&](std::string_view line) {
                            lines.emplace_back(world.passed, line);
                          })
                .ok());
    const milliseconds end = world.passed;
    REQUIRE(lines.size() >= 2);
    CHECK(lines[0].first == begin);
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto& [at, line] = lines[i];
      CAPTURE(line);
      CHECK(Contains(line,
                     "'s3://b/run' is locked by process 1\\x1b[2J on a; "
                     "if that has ended, this goes on within "));
      // What it says comes true.
      CHECK(at + seconds(SecondsOf(line)) >= end - seconds(4));
      CHECK(at + seconds(SecondsOf(line)) <= end + seconds(4));
      if (i > 0) {
        CHECK(at - lines[i - 1].first >= seconds(10));
        CHECK(at - lines[i - 1].first <= seconds(14));
      }
    }
    CHECK(end - lines.back().first <= seconds(14));
  }
  // Nobody waits for what is free or known to be held no more.
  World world;
  Actor a(world, "a"), b(world, "b");
  const auto never = [](std::string_view line) { FAIL_CHECK(line); };
  REQUIRE(a.lease->Acquire(a.client, never).ok());
  world.Pass(2 * kLength);
  CHECK(b.lease->Acquire(b.client, never).ok());
}

TEST_CASE("lease: a holder who comes late renews what nobody has taken") {
  World world;
  Actor a(world, "a");
  REQUIRE(a.Acquire().ok());
  world.Pass(10 * kLength);
  CHECK_FALSE(a.Holds());
  REQUIRE(a.lease->Renew().ok());
  CHECK(a.Holds());
  // By no clock: one stands still while the machine sleeps.
  CHECK_FALSE(a.lease->IsCertain(
      a.lease->confirmed(), {a.clock.Now(), a.clock.Time() + kLength.count()}));
}

TEST_CASE("lease: a server without times is watched") {
  World world;
  world.store.SetTimeless(true);
  Actor a(world, "a"), b(world, "b");
  REQUIRE(a.Acquire().ok());
  const milliseconds begin = world.passed;
  REQUIRE(b.Acquire().ok());
  CHECK(world.passed - begin >= kLength);
  a.Fresh();
  a.clock.on_sleep = [&] { CHECK(b.lease->Renew().ok()); };
  CheckHeld(a.Acquire(), "b");
}

TEST_CASE("lease: what is removed or is none of ours") {
  World world;
  Actor a(world, "a");
  REQUIRE(a.Acquire().ok());
  Actor b(world, "b");
  world.store.Put("run/training.lock", "something else");
  CheckHeld(b.Acquire(), "is no lock of Sluice's; remove it");
  CheckHeld(a.lease->Renew(), "is no lock of Sluice's");
  // Anybody may have written it: what is missing, of another type, or longer
  // than any time.
  for (const char* fields :
       {"", R"(,"id":"x","holder":"y")",
        R"(,"id":"x","holder":"y","seconds":-1)",
        R"(,"id":"x","holder":"y","seconds":"60")",
        R"(,"id":"x","holder":"y","seconds":60.5)",
        R"(,"id":7,"holder":"y","seconds":60)",
        R"(,"id":"x","holder":"y","seconds":100000)",
        R"(,"id":"x","holder":"y","seconds":9223372036854775807)",
        R"(,"id":"x","holder":"y","seconds":18446744073709551615)",
        R"(,"id":"x","holder":"y","seconds":1e300)"}) {
    CAPTURE(std::string(fields));
    world.store.Put(
        "run/training.lock",
        std::string(R"({"format":"sluice.lease","renewal":1)") + fields + "}");
    CheckHeld(b.Acquire(), "is no lock of Sluice's; remove it");
  }
  World other;
  Actor d(other, "d");
  REQUIRE(d.Acquire().ok());
  REQUIRE(d.client.Delete(kPath).ok());
  CheckHeld(d.lease->Renew(), "somebody removed it");
}

TEST_CASE("lease: stores that know no conditions are told") {
  using testing::Conditions;
  for (const Conditions conditions :
       {Conditions::kIgnored, Conditions::kRefused}) {
    World world;
    world.store.SetConditions(conditions);
    Actor a(world, "a"), b(world, "b");
    REQUIRE(a.Acquire().ok());
    CHECK(Contains(a.lease->warning(),
                   "'s3://b/run/training.lock': this object store knows no "
                   "conditional writes (If-None-Match, If-Match)"));
    // Whoever comes later is kept out all the same.
    b.clock.on_sleep = [&] { CHECK(a.lease->Renew().ok()); };
    CheckHeld(b.Acquire(), "a, for ");
    b.clock.on_sleep = nullptr;
    REQUIRE(b.Acquire().ok());  // when it is not renewed
    CheckHeld(a.lease->Renew(), "b, for ");
    b.lease->Release();
    CHECK_FALSE(world.store.Has("run/training.lock"));
  }
  World world;
  world.store.SetConditions(Conditions::kRefusedToDelete);
  Actor a(world, "a");
  REQUIRE(a.Acquire().ok());
  CHECK(a.lease->warning().empty());
  a.lease->Release();
  CHECK_FALSE(world.store.Has("run/training.lock"));
}

TEST_CASE("lease: a network that fails and a bucket that is none") {
  World world;
  Actor a(world, "a");
  a.http.lose = [] { return true; };
  CHECK(a.Acquire().code() == Code::kUnavailable);
  a.http.lose = nullptr;
  world.store.SetPrivate(true);
  const Status refused = a.Acquire();
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(Contains(refused.message(), "permission denied"));
  Lease none(a.client, a.clock, "s3://none/run/lock", "a", kLength);
  world.store.SetPrivate(false);
  CHECK(Contains(none.Acquire(a.client).message(), "no such bucket"));
}

// Several actors whose requests interleave in every way: before and behind each
// request of one the others take whole turns, time passes, answers are lost.
// Whoever is certain to hold the lease is the only one, and nobody who is
// certain is refused.
class Interleaving {
 public:
  explicit Interleaving(uint32_t seed) : random_(seed) {
    for (int i = 0; i < 4; ++i) {
      const auto skew = static_cast<std::time_t>(Below(random_, 2000)) - 1000;
      actors_.push_back(
          std::make_unique<Actor>(world_, fmt::format("actor {}", i), skew));
      actors_.back()->http.between = [this] { Others(); };
      actors_.back()->http.lose = [this] { return Once(random_, 8); };
    }
    busy_.resize(actors_.size());
  }
  void Run(int turns) {
    for (int i = 0; i < turns; ++i) Turn();
  }
  int acquired = 0, taken_over = 0;

 private:
  void Turn() {
    if (Once(random_, 3)) {
      world_.Pass(milliseconds(Below(random_, 25'000)));
    }
    const size_t i = Below(random_, actors_.size());
    if (busy_[i]) return;  // it waits for a server
    busy_[i] = true;
    Act(*actors_[i]);
    busy_[i] = false;
    CheckOne();
  }
  void Others() {
    CheckOne();
    if (depth_ == 3 || !Once(random_, 3)) return;
    ++depth_;
    Turn();
    --depth_;
  }
  void Act(Actor& actor) {
    if (!actor.acquired) {
      const bool held = Holder() != nullptr;
      const int before = releases_;
      if (actor.Acquire().ok()) {
        ++acquired;
        taken_over += held && before == releases_ ? 1 : 0;
      } else {
        actor.Fresh();
      }
      return;
    }
    switch (Below(random_, 8)) {
      case 0:
        actor.acquired = false;  // it writes no more
        ++releases_;
        actor.lease->Release();
        actor.Fresh();
        return;
      case 1:  // it was killed
        actor.acquired = false;
        actor.Fresh();
        return;
      default: {
        const Status renewed = actor.lease->Renew();
        if (renewed.code() != Code::kFailedPrecondition) return;
        CAPTURE(renewed.message());
        CHECK_FALSE(actor.Holds());
        actor.acquired = false;
        actor.Fresh();
      }
    }
  }
  Actor* Holder() {
    for (const auto& actor : actors_) {
      if (actor->Holds()) return actor.get();
    }
    return nullptr;
  }
  void CheckOne() {
    int holders = 0;
    for (const auto& actor : actors_) holders += actor->Holds() ? 1 : 0;
    REQUIRE(holders <= 1);
  }

  World world_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<char> busy_;
  int depth_ = 0, releases_ = 0;
};

TEST_CASE("lease: never two holders, however requests interleave") {
  int acquired = 0, taken_over = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    Interleaving interleaving(seed);
    interleaving.Run(60);
    acquired += interleaving.acquired;
    taken_over += interleaving.taken_over;
  }
  CHECK(acquired > 50);
  CHECK(taken_over > 5);
}

}  // namespace
}  // namespace sluice::remote
#endif
