// What one task of a cluster may do to another.
#include "dist/cluster/task.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/message.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "tests/dist/cluster/small_cut.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;

// Calls, right and wrong, with any body.
std::vector<std::byte> SomeCall(std::mt19937& random) {
  const std::string open =
      R"({"call": "open", "devices": ["/job:worker/task:0/cpu:0"], )";
  const std::string write =
      R"({"call": "write", "session": 2, "variable": "w", )"
      R"("device": "/job:worker/task:0/cpu:0", )";
  const std::vector<std::string> heads = {
      "",
      "{}",
      "[1]",
      R"({"call": "here"})",
      R"({"call": 3})",
      R"({"call": "open"})",
      R"({"call": "open", "devices": [], "runs": 1, "container": ""})",
      open + R"("runs": 1, "container": ""})",
      open + R"("runs": 9999999, "container": ""})",
      R"({"call": "close", "session": 1})",
      R"({"call": "register", "session": 2, "step": 1, "sizes": [3, -1]})",
      R"({"call": "register", "session": 2, "step": 1, "sizes": [5]})",
      R"({"call": "drop", "session": 2, "step": 7})",
      R"({"call": "reach", "session": 2, "task": "", "incarnations": ["x"]})",
      R"({"call": "reach", "session": 2, "task": "x", "incarnations": []})",
      R"({"call": "connect", "task": "x", "host": "127.0.0.1", "port": 0})",
      R"({"call": "read", "session": 2, "device": "/cpu:0", "variable": "v"})",
      write + R"("dtype": "float32", "shape": [2]})",
      R"({"call": "fly", "session": 2, "device": "", "variable": ""})"};
  Message message = {heads[random() % heads.size()],
                     std::vector<std::byte>(random() % 3 == 0 ? 8 : 0)};
  std::vector<std::byte> bytes = message.Pack();
  if (random() % 8 == 0) bytes[random() % bytes.size()] ^= std::byte{0x21};
  if (random() % 8 == 0) bytes.resize(random() % bytes.size());
  return bytes;
}

Frame SomeFrame(std::mt19937& random, size_t bytes) {
  constexpr FrameKind kKinds[] = {
      FrameKind::kCall,   FrameKind::kCall,   FrameKind::kCall,
      FrameKind::kAnswer, FrameKind::kRun,    FrameKind::kRun,
      FrameKind::kRan,    FrameKind::kTensor, FrameKind::kWant,
      FrameKind::kAbort,  FrameKind::kBarrier};
  // Most of a link's life is calls, or it would be short.
  Frame frame;
  frame.kind = kKinds[random() % 4 == 0 ? random() % std::size(kKinds) : 0];
  frame.run = random() % 3;
  frame.epoch = random() % 9 == 0 ? 1 : 0;
  frame.key = random() % 3;
  frame.count = random() % 5 == 0 ? ~uint64_t{0} : random() % 3;
  frame.bytes = bytes;
  return frame;
}

TEST_CASE("a member that makes no sense ends its own link, and nothing else") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  Session session(small.graph, small.Options(workers.Master()));
  session.Initialize();
  int ended = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Task member(OptionsOf("member", Transport::kTcp), nullptr, nullptr);
    const auto link =
        member.Reach(workers.addresses()[0], After(std::chrono::seconds(5)));
    REQUIRE(link.ok());
    for (int i = 0; i < 12; ++i) {
      std::vector<std::byte> payload = SomeCall(random);
      const Frame frame = SomeFrame(random, payload.size());
      (*link)->Post(frame, std::move(payload));
    }
    CHECK(small.Run(session).At(0) > 0);
    CHECK(session.Read(small.v).At(0) == seed);
    ended += (*link)->status().ok() ? 0 : 1;
  }
  MESSAGE(ended << " of 150 links ended");
  CHECK(ended > 30);
}

TEST_CASE("a worker has so many sessions of each master") {
  const Watchdog watchdog;
  const Workers workers(1, Transport::kTcp);
  Task first(OptionsOf("first", Transport::kTcp), nullptr, nullptr);
  Task second(OptionsOf("second", Transport::kTcp), nullptr, nullptr);
  const auto open = [&](Task& master, const std::string& call, int times) {
    const Task::LinkPtr link =
        master.Reach(workers.addresses()[0], After(std::chrono::seconds(5)))
            .ValueOrThrow();
    const Message message = {call, {}};
    Status status;
    for (int i = 0; i < times && status.ok(); ++i) {
      status = master.Call(link, message).status();
    }
    return status;
  };
  const std::string call =
      R"({"call": "open", "devices": ["/job:worker/task:0/cpu:0"], )"
      R"("runs": 1, "container": ""})";
  CHECK(open(first, call, 256).ok());
  CHECK(open(second, call, 256).ok());
  for (const auto& [master, name] :
       {std::pair(&first, "first"), std::pair(&second, "second")}) {
    const Status full = open(*master, call, 1);
    CHECK(full.code() == Code::kResourceExhausted);
    CHECK(Contains(full.message(),
                   std::string(name) +
                       " has 256 sessions here, all masters 512: at most 256"));
  }
  CHECK(open(second, R"({"call": "close", "session": 300})", 1).ok());
  CHECK(open(second, call, 1).ok());
  CHECK_FALSE(open(first, call, 1).ok());
}

// Of sessions one after another, together far more than it may know.
TEST_CASE("a worker forgets the ways that it was told of with their session") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  Task master(OptionsOf("master", Transport::kTcp), nullptr, nullptr);
  const Deadline limit = After(std::chrono::seconds(30));
  const Task::LinkPtr link =
      master.Reach(workers.addresses()[0], limit).ValueOrThrow();
  const auto call = [&](const Json& head) {
    return JsonObject::Parse(
               master.Call(link, {head.Text(), {}}).ValueOrThrow().head)
        .ValueOrThrow();
  };
  const ClusterTask& second = workers.addresses()[1];
  call({{"call", "connect"},
        {"task", second.name},
        {"host", second.host},
        {"port", second.port}});
  uint64_t last_device = 0;
  std::vector<uint64_t> devices(10'000);
  for (int turn = 0; turn < 14; ++turn) {
    CAPTURE(turn);
    const std::vector<std::string> own = {CpuOf(0)};
    const uint64_t session = call({{"call", "open"},
                                   {"devices", own},
                                   {"runs", 1},
                                   {"container", ""}})
                                 .Unsigned("session")
                                 .ValueOrThrow();
    // By the way to who asks, or to another, which both stay.
    for (uint64_t& device : devices) device = ++last_device;
    const Json reach = {{"call", "reach"},
                        {"session", session},
                        {"task", turn % 2 == 0 ? "" : second.name},
                        {"incarnations", WordsOf(devices)}};
    CHECK(master.Call(link, {reach.Text(), {}}).status().ToString() == "ok");
    call({{"call", "close"}, {"session", session}});
  }
}

// Seen by how many more it may know.
TEST_CASE("a worker keeps the ways that another session needs, too") {
  const Watchdog watchdog;
  const Workers workers(1, Transport::kTcp);
  Task master(OptionsOf("master", Transport::kTcp), nullptr, nullptr);
  const Task::LinkPtr link =
      master.Reach(workers.addresses()[0], After(std::chrono::seconds(30)))
          .ValueOrThrow();
  const auto call = [&](const Json& head) {
    return master.Call(link, {head.Text(), {}});
  };
  const auto open = [&] {
    const std::vector<std::string> own = {CpuOf(0)};
    const Message opened = call({{"call", "open"},
                                 {"devices", own},
                                 {"runs", 1},
                                 {"container", ""}})
                               .ValueOrThrow();
    return JsonObject::Parse(opened.head)
        .ValueOrThrow()
        .Unsigned("session")
        .ValueOrThrow();
  };
  const auto reach = [&](uint64_t session, uint64_t first, uint64_t count) {
    std::vector<uint64_t> devices(count);
    std::iota(devices.begin(), devices.end(), first);
    return call({{"call", "reach"},
                 {"session", session},
                 {"task", ""},
                 {"incarnations", WordsOf(devices)}})
        .status()
        .code();
  };
  const uint64_t before = open(), after = open();
  CHECK(reach(before, 1, 30'000) == Code::kOk);
  CHECK(reach(after, 1, 30'000) == Code::kOk);
  REQUIRE(call({{"call", "close"}, {"session", before}}).ok());
  CHECK(reach(after, 100'000, 40'000) == Code::kResourceExhausted);
  REQUIRE(call({{"call", "close"}, {"session", after}}).ok());
  CHECK(reach(open(), 100'000, 60'000) == Code::kOk);
}

// Has been asked, and does not answer before it may.
class Silent final : public Task::Service {
 public:
  Result<Message> Called(const Task::LinkPtr&, const Message&) override {
    asked.count_down();
    may_answer.wait();
    return Message{"{}", {}};
  }
  void Ordered(const Task::LinkPtr&, const RunKey&, uint64_t,
               const OrderBody&) override {}
  void Aborted(const RunKey&, const Status&) override {}
  void Came(const Link&) override {}
  void Gone(const Task::LinkPtr&) override {}

  std::latch asked{1}, may_answer{1};
};

// Many times: whether the link's own thread comes first is left to chance.
TEST_CASE("who waits for an answer is told when its task is stopped") {
  const Watchdog watchdog;
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    Silent service;
    Task far(OptionsOf("far", Transport::kTcp), nullptr, &service);
    const int port =
        far.Listen(Listener::Open("127.0.0.1").ValueOrThrow()).ValueOrThrow();
    Task near(OptionsOf("near", Transport::kTcp), nullptr, nullptr);
    const Task::LinkPtr link =
        near.Reach({"far", "127.0.0.1", port}, After(std::chrono::seconds(5)))
            .ValueOrThrow();
    Status told;
    std::thread caller([&] {
      told = near.Call(link, {R"({"call": "any"})", {}}).status();
    });
    service.asked.wait();
    near.Stop();
    caller.join();
    service.may_answer.count_down();
    CHECK(told.code() == Code::kCancelled);
    CHECK(told.message() == "near has ended");
    // So is who begins to afterwards.
    CHECK_FALSE(near.Call(link, {R"({"call": "any"})", {}}).ok());
  }
}

// A question holds up the link's thread, which would see that it has ended.
TEST_CASE("a task that is there again is reached before its end was seen") {
  const Watchdog watchdog;
  Silent service;
  const TaskOptions options = OptionsOf("far", Transport::kTcp);
  auto far = std::make_unique<Task>(options, nullptr, nullptr);
  const int port =
      far->Listen(Listener::Open("127.0.0.1").ValueOrThrow()).ValueOrThrow();
  Task near(OptionsOf("near", Transport::kTcp), nullptr, &service);
  const auto reach = [&] {
    return near.Reach({"far", "127.0.0.1", port},
                      After(std::chrono::seconds(30)));
  };
  const Task::LinkPtr before = reach().ValueOrThrow();
  const Task::LinkPtr back = far->Find("near");
  REQUIRE((back != nullptr));
  const uint64_t question = far->StartCall(back, {R"({"call": "any"})", {}});
  service.asked.wait();
  far->Stop();
  CHECK_FALSE(far->WaitCall(back, question).ok());
  far.reset();  // and its port is free
  Task again(options, nullptr, nullptr);
  ThrowIfError(
      again.Listen(Listener::Open("127.0.0.1", port).ValueOrThrow()).status());
  // While `near` asks by the link of before; a later time is no matter.
  std::thread answer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    service.may_answer.count_down();
  });
  const Result<Task::LinkPtr> reached = reach();
  answer.join();
  CHECK(reached.status().ToString() == "ok");
  CHECK((reached.ok() && *reached != before));
  CHECK((again.Find("near") != nullptr));
}

}  // namespace
}  // namespace sluice::dist::testing
