// A job forms and reduces while strangers of all kinds knock at its port.
#include "tests/dist/collective/strangers.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dist/collective/group.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

// What reductions give on every rank.
std::vector<std::vector<float>> Reduce(Groups& groups) {
  std::vector<std::vector<float>> sums(groups.size());
  const std::vector<Status> statuses = OnAll(groups, [&](Group& group) {
    std::vector<float>& data = sums[static_cast<size_t>(group.rank())];
    for (int run = 0; run < 5; ++run) {
      data.resize(10'000, 1.F / static_cast<float>(3 + group.rank()));
      SLUICE_RETURN_IF_ERROR(group.AllReduce("x", DType::kFloat32, data.data(),
                                             static_cast<int64_t>(data.size()),
                                             Reduction::kMean));
    }
    return Status::Ok();
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "ok");
  return sums;
}

TEST_CASE("strangers of all kinds change nothing, and are refused") {
  if (!HasTls()) return;
  const Watchdog watchdog;
  constexpr int kSize = 3;
  const Authority authority = Authority::Create("test").ValueOrThrow();
  Groups undisturbed = JoinAll(kSize, Wires::kTls);
  const auto wanted = Reduce(undisturbed);

  // One port for all jobs, so that the strangers know it.
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  std::mutex mutex;
  std::vector<std::string> notes;
  GroupOptions options;
  options.join_timeout = std::chrono::seconds(40);
  options.transport = Transport::kTcp;
  options.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.emplace_back(line);
  };
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kKnocks = 60;
  int let_in = 0, knocks = 0, jobs = 0;
  {
    const Strangers strangers(listener.port(), authority, kSize, Token(), 12);
    // Where jobs are fast it takes more of them for so many to have come.
    for (; jobs < 10 || (strangers.knocks() <= kKnocks && jobs < 60); ++jobs) {
      std::vector<LaunchInfo> infos = Launch(kSize);
      close(infos[0].listen_fd);
      infos[0].listen_fd = dup(listener.descriptor());
      for (LaunchInfo& info : infos) {
        info.port = listener.port();
        info.credentials =
            authority.Issue("worker", info.rank, std::chrono::hours(1))
                .ValueOrThrow();
      }
      // The door has seen some of them when the job comes.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      Groups groups = JoinEach(infos, [&](int) { return options; });
      CHECK(Reduce(groups) == wanted);
    }
    let_in = strangers.let_in();
    knocks = strangers.knocks();
  }
  CHECK(let_in == 0);
  CHECK(knocks > kKnocks);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::steady_clock::now() - begin)
                           .count();
  const auto refusals =
      std::count_if(notes.begin(), notes.end(), [](const std::string& line) {
        return line.starts_with("refused 127.0.0.1:");
      });
  CHECK(refusals > 0);
  // A line a second for each door, of which a job's first rank has one.
  CHECK(refusals <= seconds + 2 * jobs + 1);
}

TEST_CASE("who shows no certificate is refused") {
  if (!HasTls() || std::system("openssl version >/dev/null 2>&1") != 0) return;
  const Watchdog watchdog;
  std::vector<LaunchInfo> infos = LaunchEncrypted(2);
  std::string notes;
  std::mutex mutex;
  GroupOptions options;
  options.join_timeout = std::chrono::seconds(20);
  options.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.append(line).append("\n");
  };
  Groups groups(2);
  std::thread zero(
      [&] { groups[0] = Group::Join(infos[0], options).ValueOrThrow(); });
  const std::string command =
      "openssl s_client -connect 127.0.0.1:" + std::to_string(infos[0].port) +
      " </dev/null >/dev/null 2>&1";
  CHECK(std::system(command.c_str()) >= 0);
  groups[1] = Group::Join(infos[1], options).ValueOrThrow();
  zero.join();
  CHECK(notes.find("peer did not return a certificate") != std::string::npos);
  Reduce(groups);
}

}  // namespace
}  // namespace sluice::dist
