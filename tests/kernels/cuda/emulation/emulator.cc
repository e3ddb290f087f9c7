#include "tests/kernels/cuda/emulation/emulator.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tests/kernels/cuda/emulation/fiber.h"
#include "tests/kernels/cuda/emulation/machine.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace sluice::cuda::emulation {
namespace {

constexpr int kWarp = 32;

struct Thread {
  enum State : uint8_t { kReady, kAtBarrier, kAtExchange, kDone };
  State state = kReady;
  uint3 index{};
  Exchange exchange;
  Fiber fiber;
};

Order order = Order::kForward;
int most_blocks = 0;
std::vector<Traffic*> watched;
int64_t launches = 0;
std::string last_error;
std::mt19937 shuffling;                        // NOLINT: the same in every run
std::vector<std::unique_ptr<Thread>> threads;  // kept for later launches
Thread* running = nullptr;
int lane = 0;  // of the running thread
void* shared_memory = nullptr;

int VolumeOf(const dim3& size) {
  return static_cast<int>(size.x * size.y * size.z);
}
uint3 IndexIn(const dim3& size, unsigned i) {
  return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}
std::string NameOf(const uint3& at) {
  return fmt::format("({},{},{})", at.x, at.y, at.z);
}

}  // namespace

std::vector<int> InOrder(int n) {
  std::vector<int> all(n);
  std::iota(all.begin(), all.end(), 0);
  if (order == Order::kReversed) std::reverse(all.begin(), all.end());
  if (order == Order::kShuffled) {
    std::shuffle(all.begin(), all.end(), shuffling);
  }
  return all;
}

namespace {

// The threads of one block.
class Block {
 public:
  explicit Block(const std::function<void()>& thread)
      : size_(VolumeOf(blockDim)),
        warp_order_(InOrder((size_ + kWarp - 1) / kWarp)),
        lane_order_(InOrder(kWarp)) {
    for (int t = 0; t < size_; ++t) {
      threads[t]->state = Thread::kReady;
      threads[t]->index = IndexIn(blockDim, t);
      threads[t]->fiber.Start(thread);
    }
  }

  // Empty, or what is wrong.
  std::string Run() {
    do {
      std::vector<int> waiting = warp_order_;
      while (!waiting.empty()) {
        // Shuffled, warps take turns; else each goes as far as it can.
        const size_t turn =
            order == Order::kShuffled ? shuffling() % waiting.size() : 0;
        if (!Advance(waiting[turn])) {
          waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(turn));
        }
      }
    } while (PassBarrier());
    return Count(Thread::kDone) == size_ ? "" : Fault();
  }

 private:
  int Count(Thread::State state) const {
    return static_cast<int>(
        std::count_if(threads.begin(), threads.begin() + size_,
                      [&](const auto& t) { return t->state == state; }));
  }

  // Lets a warp's threads run to their next stop. False: none could.
  bool Advance(int warp) {
    CompleteExchanges(warp);
    bool ran = false;
    for (int l : lane_order_) {
      const int t = warp * kWarp + l;
      if (t >= size_ || threads[t]->state != Thread::kReady) continue;
      running = threads[t].get();
      threadIdx = running->index;
      lane = l;
      running->fiber.Resume();
      if (running->fiber.finished()) running->state = Thread::kDone;
      ran = true;
    }
    return ran;
  }

  // Is lane l of the warp where `of` waits for it?
  bool Takes(int warp, int l, const Exchange& of) const {
    const int t = warp * kWarp + l;
    return t < size_ && threads[t]->state == Thread::kAtExchange &&
           threads[t]->exchange.kind == of.kind &&
           threads[t]->exchange.mask == of.mask;
  }

  static bool Names(unsigned mask, int l) { return (mask >> l & 1u) != 0; }

  void CompleteExchanges(int warp) {
    for (int l = 0; l < kWarp; ++l) {
      const int t = warp * kWarp + l;
      if (t >= size_ || threads[t]->state != Thread::kAtExchange) continue;
      const Exchange exchange = threads[t]->exchange;
      if (!Names(exchange.mask, l)) continue;  // reported when all is stuck
      bool complete = true;
      for (int m = 0; m < kWarp; ++m) {
        complete &=
            !Names(exchange.mask, m) ||
            (Takes(warp, m, exchange) &&
             Names(exchange.mask, threads[warp * kWarp + m]->exchange.source));
      }
      if (complete) Complete(warp, exchange.mask);
    }
  }

  void Complete(int warp, unsigned mask) {
    const auto at = [&](int l) -> Thread& {
      return *threads[warp * kWarp + l];
    };
    uint64_t ballot = 0;
    for (int l = 0; l < kWarp; ++l) {
      if (Names(mask, l)) ballot |= at(l).exchange.value << l;
    }
    for (int l = 0; l < kWarp; ++l) {
      if (!Names(mask, l)) continue;
      Exchange& e = at(l).exchange;
      e.result =
          e.kind == Exchange::kVote ? ballot : at(e.source).exchange.value;
      at(l).state = Thread::kReady;
    }
  }

  // Lets all threads go on if all wait at a barrier.
  bool PassBarrier() {
    if (Count(Thread::kAtBarrier) != size_) return false;
    for (int t = 0; t < size_; ++t) threads[t]->state = Thread::kReady;
    return true;
  }

  // Why no thread can go on.
  std::string Fault() const {
    const std::string where = "in block " + NameOf(blockIdx) + ", ";
    for (int t = 0; t < size_; ++t) {
      if (threads[t]->state != Thread::kAtExchange) continue;
      const Exchange& e = threads[t]->exchange;
      const std::string what =
          where + fmt::format("the {} of thread {} with the lanes {:#010x} ",
                              e.kind == Exchange::kShuffle ? "shuffle"
                              : e.kind == Exchange::kVote  ? "vote"
                                                           : "warp barrier",
                              NameOf(threads[t]->index), e.mask);
      if (!Names(e.mask, t % kWarp)) return what + "lacks its own";
      for (int l = 0; l < kWarp; ++l) {
        if (Names(e.mask, l) && !Takes(t / kWarp, l, e)) {
          return what + fmt::format("waits for lane {}, which is not there", l);
        }
      }
      if (!Names(e.mask, e.source)) {
        return what + fmt::format("takes from lane {}, none of them", e.source);
      }
    }
    const auto absent = std::find_if(
        threads.begin(), threads.begin() + size_,
        [](const auto& t) { return t->state != Thread::kAtBarrier; });
    return where + fmt::format("{} of {} threads reached a barrier, {} did not",
                               Count(Thread::kAtBarrier), size_,
                               NameOf((*absent)->index));
  }

  int size_;
  std::vector<int> warp_order_;
  std::vector<int> lane_order_;
};

void StopAt(Thread::State state) {
  running->state = state;
  running->fiber.Stop();
}

}  // namespace

void SetOrder(Order next) {
  order = next;
}

void SetMostBlocks(int most) {
  most_blocks = most;
}

int64_t Launches() {
  return launches;
}

Traffic::Traffic(const void* begin, size_t bytes)
    : begin_(static_cast<const char*>(begin)), bytes_(bytes) {
  watched.push_back(this);
}

Traffic::~Traffic() {
  std::erase(watched, this);
}

void CountLoad(const void* from, size_t bytes) {
  for (Traffic* range : watched) {
    if (range->Holds(from)) range->loaded += static_cast<int64_t>(bytes);
  }
}

void CountStore(const void* to, size_t bytes) {
  for (Traffic* range : watched) {
    if (range->Holds(to)) range->stored += static_cast<int64_t>(bytes);
  }
}

const std::string& LastError() {
  return last_error;
}

void* SharedMemory() {
  return shared_memory;
}

void BlockBarrier() {
  StopAt(Thread::kAtBarrier);
}

int Lane() {
  return lane;
}

uint64_t Meet(const Exchange& exchange) {
  Thread& self = *running;
  self.exchange = exchange;
  // A vote and a barrier take from nobody in particular.
  if (exchange.kind != Exchange::kShuffle) self.exchange.source = lane;
  StopAt(Thread::kAtExchange);
  return self.exchange.result;
}

cudaError_t RunGrid(const cudaLaunchConfig_t& config,
                    const std::function<void()>& thread) {
  SLUICE_CHECK(running == nullptr);  // no launches from kernels
  ++launches;
  const int size = VolumeOf(config.blockDim), blocks = VolumeOf(config.gridDim);
  if (size < 1 || size > 1024 || blocks < 1 ||
      config.dynamicSmemBytes > 48 << 10) {
    last_error = fmt::format(
        "invalid configuration: {} blocks of {} threads with {} bytes of "
        "shared memory",
        blocks, size, config.dynamicSmemBytes);
    return cudaErrorLaunchFailure;
  }
  while (static_cast<int>(threads.size()) < size) {
    threads.push_back(std::make_unique<Thread>());
  }
  gridDim = config.gridDim;
  if (most_blocks > 0 && blocks > most_blocks) {
    gridDim = dim3(static_cast<unsigned>(most_blocks));
  }
  blockDim = config.blockDim;
  last_error.clear();
  for (int block : InOrder(VolumeOf(gridDim))) {
    blockIdx = IndexIn(gridDim, block);
    std::vector<unsigned char> shared(config.dynamicSmemBytes, kPoison);
    shared_memory = shared.data();
    last_error = Block(thread).Run();
    running = nullptr;
    if (!last_error.empty()) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

}  // namespace sluice::cuda::emulation
