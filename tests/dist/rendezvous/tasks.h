// Two tasks in one process, connected as two processes would be.
#ifndef SLUICE_TESTS_DIST_RENDEZVOUS_TASKS_H_
#define SLUICE_TESTS_DIST_RENDEZVOUS_TASKS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "dist/collective/sharing.h"
#include "dist/net/frame.h"
#include "dist/rendezvous/link.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "engine/runtime/rendezvous.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "tests/support/await.h"

namespace sluice::dist::testing {

// The two ends of a stream.
inline std::pair<Socket, Socket> Stream() {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  Socket one = Socket::Connect("127.0.0.1", listener.port(),
                               After(std::chrono::seconds(5)))
                   .ValueOrThrow();
  Socket other = listener.Accept(After(std::chrono::seconds(5))).ValueOrThrow();
  return {std::move(one), std::move(other)};
}

struct BothEnds {
  WirePair one, other;
};
inline BothEnds Connect(bool shared) {
  BothEnds wires;
  std::tie(wires.one.to.data, wires.other.from.data) = Stream();
  std::tie(wires.other.to.data, wires.one.from.data) = Stream();
  if (!shared) return wires;
  const auto share = [](int rank, WirePair* links) {
    LaunchInfo info;
    info.rank = info.local_rank = rank;
    info.size = info.local_size = 2;
    GroupOptions options;
    options.transport = Transport::kShared;
    ThrowIfError(
        ShareMemory(info, options, After(std::chrono::seconds(5)), links));
  };
  std::thread peer([&] { share(1, &wires.other); });
  share(0, &wires.one);
  peer.join();
  return wires;
}

inline constexpr uint64_t kOne = 11, kOther = 22;  // incarnations

inline Edge EdgeOf(int number, size_t bytes, bool to_other = true) {
  Edge edge = {number, to_other ? kOne : kOther, to_other ? kOther : kOne,
               bytes, "e" + std::to_string(number)};
  edge.mark = static_cast<uint32_t>(Key(edge.name));
  return edge;
}

inline Status Send(sluice::Exchange& run, const Edge& edge, const void* data) {
  const DeviceView view{const_cast<void*>(data)};
  SLUICE_RETURN_IF_ERROR(run.StartSend(edge, view));
  return run.WaitSent(edge, view);
}
inline Status Receive(sluice::Exchange& run, const Edge& edge, void* data) {
  SLUICE_RETURN_IF_ERROR(run.StartReceive(edge, {data}));
  return run.WaitReceived(edge, {data});
}

// A task with one device and one peer.
class TestTask final : public Link::Owner {
 public:
  TestTask(WirePair wires, std::string peer, uint64_t peers_device,
           std::chrono::milliseconds timeout = std::chrono::seconds(10),
           std::shared_ptr<LinkedRendezvous> meets =
               std::make_shared<LinkedRendezvous>())
      : rendezvous(std::move(meets)),
        link(std::make_shared<Link>(std::move(wires), std::move(peer), timeout,
                                    *this)) {
    ThrowIfError(rendezvous->Reach({peers_device}, link));
    ThrowIfError(link->Start());
  }
  ~TestTask() { link->Stop(); }

  Status Take(Link& from, const Frame& frame) override {
    return rendezvous->Take(from, frame);
  }
  void Ended(Link& from, const Status& why) override {
    rendezvous->Ended(from, why);
    MutexLock lock(mutex_);
    ended_ = why;
    changed_.NotifyAll();
  }
  Status AwaitEnd() {
    MutexLock lock(mutex_);
    while (ended_.ok()) changed_.Wait(mutex_);
    return ended_;
  }

  std::shared_ptr<LinkedRendezvous> rendezvous;
  std::shared_ptr<Link> link;

 private:
  Mutex mutex_;
  CondVar changed_;
  Status ended_ GUARDED_BY(mutex_);
};

// A peer that says what a test has it say.
struct Actor {
  // Who says nothing for so long is gone.
  explicit Actor(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    BothEnds wires = Connect(false);
    task = std::make_unique<TestTask>(std::move(wires.one), "the actor", kOther,
                                      timeout);
    out = std::move(wires.other.to.data);
    in = std::move(wires.other.from.data);
  }
  void Say(const Frame& frame, Bytes payload = {}) {
    const std::lock_guard lock(saying);
    std::array<std::byte, kFrameBytes> header;
    Encode(frame, header);
    const std::array<Bytes, 2> pieces = {Bytes(header), payload};
    (void)out.Send(pieces, After(std::chrono::seconds(2))).ok();
  }
  // Waits until what was said has been heard: it has when what is behind it
  // has, of another run.
  void AwaitHeard() {
    LinkedRendezvous& hears = *task->rendezvous;
    const size_t known = hears.runs();
    Frame abort = About(FrameKind::kAbort, hears.NewRun(), EdgeOf(0, 0));
    abort.count = 1;
    Say(abort);
    sluice::testing::AwaitTrue([&] { return hears.runs() > known; });
  }
  Frame About(FrameKind kind, const RunKey& run, const Edge& edge) const {
    Frame frame;
    frame.kind = kind;
    frame.run = run.run;
    frame.key = edge.sender;
    frame.count = static_cast<uint64_t>(edge.number);
    if (kind == FrameKind::kWant) frame.rank = MarkOf(edge);
    return frame;
  }
  std::unique_ptr<TestTask> task;
  Socket out, in;
  std::mutex saying;  // several threads may be
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_RENDEZVOUS_TASKS_H_
