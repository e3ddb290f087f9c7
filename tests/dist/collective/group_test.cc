// How a group forms, and who is kept out of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/hello.h"
#include "dist/net/socket.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/free_ports.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Groups;
using testing::InThreads;
using testing::JoinAll;
using testing::Launch;
using testing::OnAll;
using testing::Token;
using testing::Watchdog;

Socket Knock(const LaunchInfo& info) {
  return Socket::Connect(info.host, info.port, After(seconds(5)))
      .ValueOrThrow();
}

void Say(Socket& socket, std::string_view text) {
  (void)socket
      .Send(std::as_bytes(std::span(text.data(), text.size())),
            After(seconds(1)))
      .ok();
}

Hello Stranger(int rank, int size, std::string token) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.token = std::move(token);
  hello.version = "0";
  hello.address = "127.0.0.1";
  hello.port = 1;
  return hello;
}

}  // namespace

TEST_CASE("groups of 1 to 6 know who is who") {
  for (int size = 1; size <= 6; ++size) {
    const Watchdog watchdog;
    Groups groups = JoinAll(size);
    for (int rank = 0; rank < size; ++rank) {
      const Group& group = *groups[static_cast<size_t>(rank)];
      CHECK(group.rank() == rank);
      CHECK(group.size() == size);
      CHECK(group.local_rank() == rank);
      CHECK(group.local_size() == size);
      CHECK(group.bytes_sent() == 0);
    }
  }
}

TEST_CASE("strangers do not disturb a forming") {
  const Watchdog watchdog;
  const std::vector<LaunchInfo> infos = Launch(3);
  std::mutex mutex;
  std::string notes;
  GroupOptions options;
  options.note = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    notes.append(line).append("\n");
  };
  std::vector<Socket> strangers;
  const auto hello = [&](const Hello& says) {
    strangers.push_back(Knock(infos[0]));
    REQUIRE(SendHello(says, strangers.back(), After(seconds(1))).ok());
  };
  hello(Stranger(1, 3, std::string(64, '8')));
  hello(Stranger(1, 3, ""));
  hello(Stranger(2, 3, Token().substr(1)));
  hello(Stranger(1, 4, Token()));
  hello(Stranger(7, 3, Token()));
  strangers.push_back(Knock(infos[0]));  // silence
  strangers.push_back(Knock(infos[0]));
  Say(strangers.back(), "GET / HTTP/1.1\r\n\r\n");  // less than a hello
  strangers.push_back(Knock(infos[0]));
  Say(strangers.back(), std::string(100'000, 'x'));
  strangers.push_back(Knock(infos[0]));
  Say(strangers.back(), std::string("SLUI") + std::string(60, '\0'));
  Knock(infos[0]);  // and gone

  Groups groups(3);
  std::vector<Status> statuses(3);
  InThreads(3, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    auto group = Group::Join(infos[i], options);
    statuses[i] = group.status();
    if (group.ok()) groups[i] = *std::move(group);
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "ok");
  for (const Status& status :
       OnAll(groups, [](Group& group) { return group.Barrier("x"); })) {
    CHECK(status.ToString() == "ok");
  }
  CHECK(notes.find("refused 127.0.0.1") != std::string::npos);
  CHECK(std::count(notes.begin(), notes.end(), '\n') <= 4);  // a line a second
}

TEST_CASE("a rank that is there twice is refused, the first one stays") {
  const Watchdog watchdog;
  std::vector<LaunchInfo> infos = Launch(2);
  infos.push_back(infos[1]);
  GroupOptions options;
  options.join_timeout = seconds(20);
  std::vector<Status> statuses(3);
  Groups groups(3);
  InThreads(3, [&](int i) {
    auto group = Group::Join(infos[static_cast<size_t>(i)], options);
    statuses[static_cast<size_t>(i)] = group.status();
    if (group.ok()) groups[static_cast<size_t>(i)] = *std::move(group);
  });
  CHECK(statuses[0].ok());
  CHECK(statuses[1].ok() != statuses[2].ok());
}

TEST_CASE("who came is told who is missing") {
  const Watchdog watchdog;
  const std::vector<LaunchInfo> infos = Launch(4);
  GroupOptions options;
  options.join_timeout = seconds(3);
  std::vector<Status> statuses(2);
  InThreads(2, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    statuses[i] = Group::Join(infos[i], options).status();
  });
  for (const Status& status : statuses) {
    CAPTURE(status.ToString());
    CHECK(status.code() == Code::kDeadlineExceeded);
    CHECK(status.message().find("rank 0 of 4 waits for ranks 2, 3") == 0);
  }
}

TEST_CASE("without rank 0 the others say that they wait for it") {
  const Watchdog watchdog;
  LaunchInfo info = Launch(2)[1];  // its listener is another descriptor of it
  info.port = sluice::testing::FreePorts(1)[0];
  GroupOptions options;
  options.join_timeout = milliseconds(200);
  const Status status = Group::Join(info, options).status();
  CAPTURE(status.ToString());
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(status.message().find("rank 1 of 2 waits for rank 0 of 2") == 0);
}

TEST_CASE("Door: another version of Sluice ends the forming") {
  const Watchdog watchdog;
  Hello own = Stranger(0, 2, Token());
  own.version = "1";
  Door door(Listener::Open("127.0.0.1").ValueOrThrow(), own, nullptr, {});
  Socket socket = Socket::Connect("127.0.0.1", door.port(), After(seconds(5)))
                      .ValueOrThrow();
  REQUIRE(SendHello(Stranger(1, 2, Token()), socket, After(seconds(1))).ok());
  const Status status = door.Admit(After(seconds(5))).status();
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(status.message() == "rank 1 is Sluice 0, rank 0 is 1");
}

TEST_CASE("Group: arguments that make no sense") {
  LaunchInfo info;
  info.rank = 2;
  info.size = 2;
  CHECK(Group::Join(info, {}).status().code() == Code::kInvalidArgument);
  info.rank = 0;
  CHECK(Group::Join(info, {}).status().code() == Code::kInvalidArgument);
  for (const int here : {0, -1, 3}) {
    info.local_size = here;
    const Status status = Group::Join(info, {}).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("on this host") != std::string::npos);
  }
  const auto alone = Group::Alone();
  char byte = 'x';
  CHECK(alone->Broadcast("b", &byte, 1, 1).code() == Code::kInvalidArgument);
}

}  // namespace sluice::dist
