// What is said while a server fails: once that it does, once that it answers.
#include "io/remote/http/outage.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/note.h"
#include "io/remote/http/retry.h"
#include "tests/support/error_text.h"
#include "tests/support/slept_clock.h"

namespace sluice::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::SleptClock;

// The lines that all threads say while it lives.
class Said {
 public:
  Said() {
    lines_.clear();
    SetNotes([](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~Said() { SetNotes(nullptr); }
  std::vector<std::string> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<std::string> lines_;
};

// Answers 503 while it is down.
class Server : public HttpClient {
 public:
  explicit Server(SleptClock& clock) : clock_(clock) {}
  Result<HttpResponse> Send(const HttpRequest&) override {
    return HttpResponse{.status = clock_.Slept() < up_at.load() ? 503 : 200};
  }
  std::atomic<milliseconds> up_at = milliseconds(0);

 private:
  SleptClock& clock_;
};

struct Fixture {
  explicit Fixture(seconds deadline = seconds(300))
      : policy{.deadline = deadline} {
    (void)Send();
  }
  Status Send(const std::string& what = "cannot read 'k'") {
    return retrier
        .Send(what,
              [](std::time_t) -> Result<HttpRequest> {
                return HttpRequest{.url = "http://host:9/k?secret=hush"};
              })
        .status();
  }
  void DownFor(milliseconds time) { server.up_at = clock.Slept() + time; }

  SleptClock clock;
  Server server{clock};
  const RetryPolicy policy;
  Retrier retrier{server, clock, policy};
  Said said;
};

// Of "... NAME 09:30:12 UTC ...", in seconds of the day.
int TimeAfter(const std::string& line, const std::string& name) {
  const size_t at = line.find(name);
  REQUIRE(at != std::string::npos);
  const std::string time = line.substr(at + name.size() + 1, 12);
  REQUIRE(time.ends_with(" UTC"));
  return (std::stoi(time.substr(0, 2)) * 60 + std::stoi(time.substr(3, 2))) *
             60 +
         std::stoi(time.substr(6, 2));
}

TEST_CASE("an outage: nothing is said of a few seconds") {
  Fixture f;
  for (const int down : {1, 50, 1000, 1500}) {
    CAPTURE(down);
    f.DownFor(milliseconds(down));
    CHECK(f.Send().ok());
    CHECK(f.said.Take().empty());
  }
}

TEST_CASE("an outage: that it is, since and until when, and its end") {
  constexpr int kDay = 24 * 60 * 60;
  for (const int down : {15, 40, 120, 250}) {
    CAPTURE(down);
    Fixture f;
    const std::time_t begin = f.clock.Time();
    const milliseconds slept = f.clock.Slept();
    f.DownFor(seconds(down));
    CHECK(f.Send().ok());
    const std::vector<std::string> said = f.said.Take();
    REQUIRE(said.size() == 2);
    CAPTURE(said[0]);
    CHECK(said[0].starts_with("http://host:9 has failed since "));
    CHECK(Contains(said[0], "cannot read 'k': status 503"));
    CHECK(said[0].find("hush") == std::string::npos);
    const auto seconds_of_day = static_cast<int>(begin % kDay);
    const int since = TimeAfter(said[0], "since"),
              until = TimeAfter(said[0], "until");
    CHECK((since - seconds_of_day + kDay + 1) % kDay <= 2);
    CHECK((until - since + kDay) % kDay >= 299);
    CHECK((until - since + kDay) % kDay <= 301);
    const auto lasted =
        std::chrono::round<seconds>(f.clock.Slept() - slept).count();
    CHECK(said[1] ==
          fmt::format("http://host:9 answers again, after {} s", lasted));
  }
}

TEST_CASE("an outage: many requests, one line, at most one a minute") {
  Fixture f;
  f.DownFor(seconds(2000));  // of the threads' sleeps together
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&f] { (void)f.Send(); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto is_failure = [](const std::string& line) {
    return line.find("has failed since") != std::string::npos;
  };
  const std::vector<std::string> said = f.said.Take();
  const auto failures = std::count_if(said.begin(), said.end(), is_failure);
  CHECK(failures >= 1);
  CHECK(failures <= f.clock.Slept() / seconds(60) + 1);
  // It comes and goes.
  const auto begin = f.clock.Slept();
  std::vector<std::string> flapping;
  for (int i = 0; i < 20; ++i) {
    f.DownFor(seconds(13));
    CHECK(f.Send().ok());
    for (std::string& line : f.said.Take()) flapping.push_back(line);
  }
  const auto minutes = (f.clock.Slept() - begin) / seconds(60);
  const auto lines = static_cast<int64_t>(flapping.size());
  CHECK(lines >= 2);
  CHECK(lines <= 2 * (minutes + 1));
}

TEST_CASE("an outage: who gives up has said so, and the next one is said") {
  Fixture f(seconds(30));
  for (int i = 0; i < 2; ++i) {
    f.DownFor(seconds(200));
    CHECK(f.Send().code() == Code::kUnavailable);
    CHECK(f.said.Take().size() == 1);
    f.clock.Sleep(seconds(300));
    CHECK(f.Send().ok());
    CHECK(f.said.Take().empty());
  }
}

TEST_CASE("an outage: none is said where nobody is to be told") {
  SleptClock clock;
  Server server(clock);
  Retrier retrier(server, clock,
                  {.deadline = seconds(15), .quiet = seconds(15)});
  Said said;
  server.up_at = seconds(14);
  (void)retrier.Send("x", [](std::time_t) -> Result<HttpRequest> {
    return HttpRequest{.url = "http://host/"};
  });
  CHECK(said.Take().empty());
}

}  // namespace
}  // namespace sluice::remote
