// Tensors from and to GPUs of other tasks, at the rendezvous: in any order of
// readiness, of any size, through either transport, some runs aborted while
// copies are pending.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/accelerator.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/rendezvous/tasks.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"

namespace sluice::testing {
namespace {

using dist::testing::TestTask;
using dist::testing::Watchdog;
constexpr auto kNever = std::chrono::steady_clock::time_point::max();
constexpr uint64_t kOf[] = {11, 22};  // incarnations, of both tasks' devices
constexpr std::byte kSpoilt{0x5a};

using Bytes = std::vector<std::byte>;

// A tensor's memory, on the host or on a GPU.
class Place {
 public:
  Place(Accelerator* accelerator, const Bytes& value)
      : accelerator_(accelerator), host_(value) {
    if (accelerator == nullptr) return;
    const size_t bytes = std::max<size_t>(value.size(), 1);
    device_ = accelerator->Allocate(bytes).ValueOrThrow();
    pinned_ = accelerator->AllocatePinned(bytes).ValueOrThrow();
    Write(value);
  }
  DeviceView view() {
    return accelerator_ ? DeviceView{device_.get(), accelerator_}
                        : DeviceView{host_.data()};
  }
  // Behind what its compute queue was given.
  void Write(const Bytes& value) {
    host_ = value;
    if (accelerator_ == nullptr || value.empty()) return;
    ThrowIfError(accelerator_->Synchronize());  // the last one's pinned memory
    std::memcpy(pinned_.get(), value.data(), value.size());
    ThrowIfError(accelerator_->CopyIn(Accelerator::kCompute, device_.get(),
                                      pinned_.get(), value.size()));
  }
  Bytes Read() {
    if (accelerator_ == nullptr || host_.empty()) return host_;
    ThrowIfError(accelerator_->CopyOut(Accelerator::kCompute, pinned_.get(),
                                       device_.get(), host_.size()));
    ThrowIfError(accelerator_->Synchronize());
    std::memcpy(host_.data(), pinned_.get(), host_.size());
    return host_;
  }
  // As work of the compute queue that waits for nothing on the host.
  void Spoil() {
    std::fill(host_.begin(), host_.end(), kSpoilt);
    if (accelerator_ == nullptr || host_.empty()) return;
    if (spoil_ == nullptr) {
      spoil_ = accelerator_->AllocatePinned(host_.size()).ValueOrThrow();
      std::memcpy(spoil_.get(), host_.data(), host_.size());
    }
    ThrowIfError(accelerator_->CopyIn(Accelerator::kCompute, device_.get(),
                                      spoil_.get(), host_.size()));
  }

 private:
  Accelerator* const accelerator_;
  Bytes host_;
  std::shared_ptr<void> device_, pinned_, spoil_;
};

// Two tasks with a GPU each, as if in two processes.
struct Pair {
  explicit Pair(bool shared) : Pair(dist::testing::Connect(shared)) {}
  ~Pair() {
    for (int who : {0, 1}) task(who).rendezvous->RemoveDevices(Own(who));
  }
  TestTask& task(int who) { return who == 0 ? one : other; }
  std::array<OwnMemory, 1> Own(int who) const {
    return {OwnMemory{kOf[who], gpus[static_cast<size_t>(who)].get()}};
  }

  std::vector<std::unique_ptr<Accelerator>> gpus;
  TestTask one, other;

 private:
  explicit Pair(dist::testing::BothEnds wires)
      : one(std::move(wires.one), "other", kOf[1]),
        other(std::move(wires.other), "one", kOf[0]) {
    for (int who : {0, 1}) {
      gpus.push_back(OpenAccelerator(DeviceType::kCuda, who, /*shared=*/true)
                         .ValueOrThrow());
      task(who).rendezvous->AddDevices(Own(who));
    }
  }
};

// What one trial sends: each edge from and to a GPU or the host.
struct Sent {
  Edge edge;
  bool on_gpu[2];  // at either task
};

std::vector<Sent> SomeEdges(std::mt19937& random) {
  std::vector<Sent> edges(1 + random() % 12);
  for (size_t i = 0; i < edges.size(); ++i) {
    const size_t sender = random() % 2;
    const size_t most = random() % 12 == 0 ? 1'000'000 : 5'000;
    edges[i].edge = {static_cast<int>(i), kOf[sender], kOf[1 - sender],
                     random() % 8 == 0 ? 0 : random() % most,
                     "e" + std::to_string(i)};
    for (bool& on_gpu : edges[i].on_gpu) on_gpu = random() % 4 > 0;
  }
  return edges;
}

// One task's part of a run. Whether all went well.
bool RunPart(Pair& pair, int who, const RunKey& key,
             const std::vector<Sent>& edges, uint32_t seed, bool aborts) {
  TestTask& task = pair.task(who);
  Accelerator& gpu = *pair.gpus[static_cast<size_t>(who)];
  ThrowIfError(gpu.Use());
  std::mt19937 random(seed * 2 + static_cast<uint32_t>(who));
  std::vector<Sent> order = edges;
  std::shuffle(order.begin(), order.end(), random);
  Exchange& run =
      **task.rendezvous->Join(key, static_cast<int>(edges.size()), 1, kNever);
  std::map<int, std::unique_ptr<Place>> places;
  std::vector<Sent> started;
  const auto maybe_abort = [&] {
    if (!aborts || random() % 6 > 0) return;
    task.rendezvous->Abort(key, OutOfRange("planted"));
  };
  for (const Sent& sent : order) {
    const Edge& edge = sent.edge;
    const bool sends = edge.sender == kOf[who];
    places[edge.number] = std::make_unique<Place>(
        sent.on_gpu[who] ? &gpu : nullptr,
        RandomBuffer(sends ? seed + static_cast<uint32_t>(edge.number) : 0,
                     edge.bytes));
    const DeviceView view = places[edge.number]->view();
    CHECK((sends ? run.StartSend(edge, view) : run.StartReceive(edge, view))
              .ok());
    maybe_abort();
  }
  std::shuffle(order.begin(), order.end(), random);
  Status status;
  for (const Sent& sent : order) {
    const Edge& edge = sent.edge;
    Place& place = *places[edge.number];
    const bool sends = edge.sender == kOf[who];
    maybe_abort();
    const Status waited = sends ? run.WaitSent(edge, place.view())
                                : run.WaitReceived(edge, place.view());
    if (!waited.ok()) status = waited;
    if (!sends && waited.ok()) {
      const bool same =
          place.Read() ==
          RandomBuffer(seed + static_cast<uint32_t>(edge.number), edge.bytes);
      CHECK(same);
    }
    place.Spoil();  // whatever came of it, nobody touches it any more
  }
  if (aborts) task.rendezvous->Abort(key, OutOfRange("planted"));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  for (const Sent& sent : edges) {
    const bool spoilt =
        places[sent.edge.number]->Read() == Bytes(sent.edge.bytes, kSpoilt);
    CHECK(spoilt);
  }
  task.rendezvous->Leave(key);
  CHECK((status.ok() || status.message() == "planted"));
  return status.ok();
}

TEST_CASE("many edges between tasks' GPUs, some runs aborted anywhere") {
  RegisterGpu();
  int whole = 0, ended = 0;
  for (const bool shared : {false, true}) {
    const Watchdog watchdog;
    Pair pair(shared);
    for (uint32_t seed = 1; seed <= Rounds(120u); ++seed) {
      CAPTURE(shared);
      CAPTURE(seed);
      std::mt19937 random(seed);
      const std::vector<Sent> edges = SomeEdges(random);
      const int aborts = seed % 3 == 0 ? static_cast<int>(random() % 2) : -1;
      const RunKey key = pair.one.rendezvous->NewRun();
      bool well[2] = {};
      std::thread other(
          [&] { well[1] = RunPart(pair, 1, key, edges, seed, aborts == 1); });
      well[0] = RunPart(pair, 0, key, edges, seed, aborts == 0);
      other.join();
      if (aborts < 0) CHECK((well[0] && well[1]));
      (well[0] && well[1] ? whole : ended) += 1;
    }
    REQUIRE(pair.one.link->status().ok());
  }
  MESSAGE(whole << " runs whole, " << ended << " ended");
  CHECK(whole >= Rounds(120));
  CHECK(ended >= Rounds(30));
}

// Nobody is there for the tensor yet: it waits in pinned memory, and the device
// that it is of may go.
TEST_CASE("what a GPU has sent arrives when its device is gone") {
  RegisterGpu();
  const Watchdog watchdog;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{3'000'001}}) {
    CAPTURE(bytes);
    Pair pair(false);
    const Edge edge = {0, kOf[0], kOf[1], bytes, "e"};
    const RunKey key = pair.one.rendezvous->NewRun();
    const Bytes wanted = RandomBuffer(5, bytes);
    {
      ThrowIfError(pair.gpus[0]->Use());
      Place place(pair.gpus[0].get(), wanted);
      Exchange& run = **pair.one.rendezvous->Join(key, 1, 1, kNever);
      CHECK(run.StartSend(edge, place.view()).ok());
      CHECK(run.WaitSent(edge, place.view()).ok());
      place.Spoil();
      pair.one.rendezvous->Leave(key);
      ThrowIfError(pair.gpus[0]->Synchronize());
    }
    pair.one.rendezvous->RemoveDevices(pair.Own(0));
    pair.gpus[0].reset();
    Bytes got(bytes);
    Exchange& run = **pair.other.rendezvous->Join(key, 1, 1, kNever);
    CHECK(run.StartReceive(edge, {got.data()}).ok());
    CHECK(run.WaitReceived(edge, {got.data()}).ok());
    pair.other.rendezvous->Leave(key);
    CHECK(got == wanted);
    while (pair.one.rendezvous->runs() > 0) std::this_thread::yield();
  }
}

TEST_CASE(
    "a GPU waits for a task that is gone no longer, and hears who it is") {
  RegisterGpu();
  const Watchdog watchdog;
  Pair pair(false);
  ThrowIfError(pair.gpus[0]->Use());
  Place place(pair.gpus[0].get(), RandomBuffer(1, 1000));
  const Edge edge = {0, kOf[1], kOf[0], 1000, "e"};
  const RunKey key = pair.one.rendezvous->NewRun();
  Exchange& run = **pair.one.rendezvous->Join(key, 1, 1, kNever);
  CHECK(run.StartReceive(edge, place.view()).ok());
  pair.other.link->End(Cancelled("gone"));
  CHECK(run.WaitReceived(edge, place.view()).message() ==
        "other has closed the connection");
  CHECK(place.Read() == RandomBuffer(1, 1000));
  pair.one.rendezvous->Leave(key);
  CHECK(pair.one.rendezvous->runs() == 0);
}

// Which go on when their parts have left, as those of a device of one's own do.
TEST_CASE("what one run has received is not another's") {
  RegisterGpu();
  const Watchdog watchdog;
  Pair pair(false);
  ThrowIfError(pair.gpus[0]->Use());
  const Edge edge = {0, kOf[1], kOf[0], 5000, "e"};
  std::vector<std::unique_ptr<Place>> places;
  constexpr uint32_t kRuns = 8;
  for (uint32_t i = 0; i < kRuns; ++i) {
    places.push_back(
        std::make_unique<Place>(pair.gpus[0].get(), Bytes(edge.bytes)));
  }
  ThrowIfError(pair.gpus[0]->Synchronize());
  for (uint32_t i = 0; i < kRuns; ++i) {
    Bytes sent = RandomBuffer(i + 1, edge.bytes);
    const DeviceView from{sent.data()}, into = places[i]->view();
    const RunKey key = pair.one.rendezvous->NewRun();
    Exchange& mine = **pair.one.rendezvous->Join(key, 1, 1, kNever);
    Exchange& other = **pair.other.rendezvous->Join(key, 1, 1, kNever);
    CHECK(mine.StartReceive(edge, into).ok());
    CHECK(other.StartSend(edge, from).ok());
    CHECK(other.WaitSent(edge, from).ok());
    CHECK(mine.WaitReceived(edge, into).ok());
    pair.one.rendezvous->Leave(key);
    pair.other.rendezvous->Leave(key);
  }
  for (uint32_t i = 0; i < kRuns; ++i) {
    CAPTURE(i);
    const bool same = places[i]->Read() == RandomBuffer(i + 1, edge.bytes);
    CHECK(same);
  }
}

TEST_CASE("pinned memory is used again, and no more kept than was in use") {
  RegisterGpu();
  const auto gpu =
      OpenAccelerator(DeviceType::kCuda, 0, /*shared=*/true).ValueOrThrow();
  ThrowIfError(gpu->Use());
  dist::DeviceTransfers transfers;
  const auto take = [&](size_t bytes) {
    return transfers.Take(*gpu, bytes).ValueOrThrow();
  };
  auto one = take(20'000), other = take(30'000);
  const void* const first = one->memory.data();
  CHECK(other->memory.data() != first);
  one.reset();
  CHECK(take(11'000)->memory.data() == first);
  CHECK(take(20'001)->memory.data() != first);
  other.reset();
  // One of another kind of step takes their place.
  take(60'000).reset();
  CHECK(take(60'000)->memory.bytes() == 60'000);
  CHECK(take(11'000)->memory.bytes() == 11'000);
  CHECK(take(0)->memory.bytes() == 0);
}

TEST_CASE("a device that the rendezvous was not given is an error") {
  RegisterGpu();
  Pair pair(false);
  pair.one.rendezvous->RemoveDevices(pair.Own(0));
  const RunKey key = pair.one.rendezvous->NewRun();
  Exchange& run = **pair.one.rendezvous->Join(key, 1, 1, kNever);
  const Edge edge = {0, kOf[0], kOf[1], 1, "e"};
  CHECK(run.StartSend(edge, {nullptr, pair.gpus[0].get()}).code() ==
        Code::kInternal);
  pair.one.rendezvous->Leave(key);
  pair.one.rendezvous->AddDevices(pair.Own(0));
}

}  // namespace
}  // namespace sluice::testing
