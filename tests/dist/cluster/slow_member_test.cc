// A member of the cluster that asks a worker for much and reads nothing.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/introduction.h"
#include "dist/cluster/message.h"
#include "dist/collective/links.h"
#include "dist/collective/sharing.h"
#include "engine/machine_memory.h"
#include "tests/dist/cluster/greeted.h"
#include "tests/dist/cluster/workers.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist::testing {
namespace {

Deadline Soon() {
  return After(std::chrono::seconds(20));
}

// Speaks to a worker without a thread that would read.
class Member {
 public:
  explicit Member(int port) {
    wires_.to.data = Stream(port, true);
    wires_.from.data = Stream(port, false);
    const Frame who = ReceiveHeader(wires_.from.data, Soon()).ValueOrThrow();
    (void)ReceiveText(who, wires_.from.data, Soon()).ValueOrThrow();
    LaunchInfo info;
    info.size = info.local_size = 2;
    GroupOptions options;
    options.transport = Transport::kTcp;
    ThrowIfError(ShareMemory(info, options, Soon(), &wires_));
  }

  void Say(const Message& message) {
    const std::vector<std::byte> payload = message.Pack();
    SayHeader(FrameKind::kCall, payload.size());
    ThrowIfError(wires_.to.data.Send(Bytes(payload), Soon()));
  }
  void SayHeader(FrameKind kind, uint64_t bytes) {
    Frame frame;
    frame.kind = kind;
    frame.bytes = bytes;
    std::array<std::byte, kFrameBytes> header;
    Encode(frame, header);
    ThrowIfError(wires_.to.data.Send(Bytes(header), Soon()));
  }
  // The next answer; kDeadlineExceeded where only pings have come until then.
  Result<Message> Hear(Deadline deadline = Soon()) {
    while (std::chrono::steady_clock::now() < deadline) {
      SLUICE_ASSIGN_OR_RETURN(const Frame frame,
                              ReceiveHeader(wires_.from.data, deadline));
      std::vector<std::byte> bytes(frame.bytes);
      SLUICE_RETURN_IF_ERROR(wires_.from.data.Receive(bytes, deadline));
      if (frame.kind != FrameKind::kAnswer) continue;
      if (frame.count == 0) return Message::Unpack(std::move(bytes));
      return Status(static_cast<Code>(frame.count), "an error");
    }
    return DeadlineExceeded("no answer");
  }

 private:
  static Socket Stream(int port, bool to) {
    Socket socket = Greeted(port);
    ThrowIfError(SendText(FrameKind::kCall, 0,
                          Introduction{"member", "1", to}.ToText(), 0, socket,
                          Soon()));
    return socket;
  }

  WirePair wires_;
};

std::string CallOf(const std::string& call, const std::string& more = "") {
  return R"({"call": ")" + call +
         R"(", "session": 1, "device": "/job:worker/task:0/cpu:0", )"
         R"("variable": "v")" +
         more + "}";
}

// Of 400 answers of 1 MiB. The thread sanitizer has several bytes for each.
#ifdef SLUICE_THREAD_SANITIZER
constexpr size_t kMostGrowth = size_t{600} << 20;
#else
constexpr size_t kMostGrowth = size_t{120} << 20;
#endif

size_t Resident() {
  return ProcBytes("/proc/self/status", "VmRSS", 0);
}

TEST_CASE("answers that nobody reads take no memory, and come in the end") {
  const Workers workers(1, Transport::kTcp);
  Member member(workers.addresses()[0].port);
  member.Say({R"({"call": "open", "devices": ["/job:worker/task:0/cpu:0"], )"
              R"("runs": 1, "container": ""})",
              {}});
  REQUIRE(member.Hear().ok());
  constexpr size_t kElements = 260'000;  // just under 1 MiB
  const Tensor value = Tensor::Full(DType::kFloat32, {kElements}, 3);
  member.Say({CallOf("write", R"(, "dtype": "float32", "shape": [260000])"),
              MessageOf(value).body});
  REQUIRE(member.Hear().ok());
  constexpr int kReads = 400;
  const size_t before = Resident();
  for (int i = 0; i < kReads; ++i) member.Say({CallOf("read"), {}});
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  CHECK(Resident() < before + kMostGrowth);
  for (int i = 0; i < kReads; ++i) {
    if (i % 100 == 0) member.SayHeader(FrameKind::kPing, 0);
    const Message got = member.Hear().ValueOrThrow();
    REQUIRE(got.body.size() == value.bytes());
  }
}

// What a worker answers a member that says such a header and little of what it
// announces; kDeadlineExceeded: nothing, and their link lives on.
Code AnswerTo(uint64_t bytes, std::chrono::milliseconds limit) {
  WorkerOptions options;
  options.task = OptionsOf(WorkerName(0), Transport::kTcp);
  options.task.peer_timeout = std::chrono::hours(1);  // no silence ends it
  const auto worker = Worker::Start(options).ValueOrThrow();
  Member member(worker->port());
  try {
    member.SayHeader(FrameKind::kCall, bytes);
    member.Say({"{}", {}});
    return member.Hear(After(limit)).status().code();
  } catch (const Error& error) {  // it has ended by now
    return error.code();
  }
}

TEST_CASE("a message of more than its most ends its sender's link") {
  CHECK(AnswerTo(kMaxMessage + 1, std::chrono::seconds(20)) ==
        Code::kUnavailable);
  // For the longest that there may be it waits, or drops what comes.
  CHECK(AnswerTo(kMaxMessage, std::chrono::seconds(1)) ==
        Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace sluice::dist::testing
