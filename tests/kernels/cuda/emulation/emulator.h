// The CUDA execution model on one CPU thread, for tests: the kernels of
// kernels/cuda, compiled as C++, run with the threads of a block as fibers.
//
// Blocks run one after another. A thread runs until a barrier, shuffle or vote
// stops it; a warp runs as far as it can before the next begins. What order the
// threads, warps and blocks take is the test's choice, and a correct kernel
// gives the same bits in any: a missing barrier shows as a difference. Shared
// memory holds kPoison before each block, so that reading what nobody wrote
// gives NaN or nonsense. Every block gets its bytes of it from the heap, so
// that the address sanitizer sees accesses beyond them.
//
// A launch fails, as one on a device does, when threads wait for what cannot
// happen: a barrier that some thread of the block has returned without, or a
// shuffle or vote that a lane of the mask does not take part in.
//
// Work on a stream is done when something waits for it and not before, so that
// a copy from memory that was overwritten too early, or a stream that should
// have waited for another, shows. Device memory (cudaMalloc) faults for all but
// such work, and for kernels of another device that has no access to it. A
// captured graph holds launches with their arguments as they were; what does
// not depend on each other in it is done in the test's order, too.
//
// Not modelled: caches and memory order between threads, time, and static
// `__shared__` variables (kernels have SharedMemory() in
// kernels/cuda/device/launch.h). One launch at a time.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::cuda::emulation {

enum class Order : uint8_t {
  kForward,
  kReversed,
  kShuffled,  // another for each launch; warps also take turns
};
inline constexpr Order kOrders[] = {Order::kForward, Order::kReversed,
                                    Order::kShuffled};
// Of the launches from now on, and of what is in a graph; kForward at first.
void SetOrder(Order order);

// Of the launches from now on, run at most so many blocks, 0 for as many as
// asked for. A kernel that does its work in steps of the grid gives the same
// with any number, and so shows what it lacks from one step to the next.
void SetMostBlocks(int most);

// The bytes that kernels load from a range of memory and store to it while this
// lives, by the accessors of kernels/cuda/device/element.h: what goes past them
// is not counted. Ranges may not overlap.
class Traffic {
 public:
  Traffic(const void* begin, size_t bytes);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  int64_t loaded = 0, stored = 0;

  bool Holds(const void* p) const {
    const auto* at = static_cast<const char*>(p);
    return at >= begin_ && at < begin_ + bytes_;
  }

 private:
  const char* begin_;
  size_t bytes_;
};

inline constexpr unsigned char kPoison = 0xff;  // NaN in every float type

// Launches so far, so that a test sees that its kernel ran.
int64_t Launches();
// Launches of captured graphs so far.
int64_t GraphLaunches();

// The device that was last asked how its work is (cudaStreamQuery); -1: none.
int QueriedDevice();

// Bytes copied so far: from host memory to a device's or back, each way; and
// from device to device.
struct CopiedBytes {
  int64_t of_host = 0, of_peers = 0;
};
CopiedBytes Copied();

// What there is from now on.
inline constexpr int kMostGpus = 4;
struct Machine {
  int gpus = 2;
  int driver = CUDART_VERSION;       // the newest CUDA that it serves; 0: none
  int major = 9;                     // compute capability
  size_t memory = size_t{16} << 30;  // bytes, of all GPUs together
  // Bit kMostGpus * a + b: whether a may have access to b's memory.
  uint64_t peers = ~uint64_t{0};
};
void SetMachine(const Machine& machine);

// After `after` more calls of the CUDA function of that name the next fails;
// "work" is what a stream does, rather than a call. An error that loses a real
// device is what all calls return from then on, and no work is done. The next
// call of Fail ends that; Fail("", cudaSuccess) does nothing else.
void Fail(std::string_view function, cudaError_t error, int after = 0);
// Whether the failure has happened.
bool Failed();

// For the emulated runtime: a launch, now; and what the last that failed did
// wrong.
cudaError_t RunGrid(const cudaLaunchConfig_t& config,
                    const std::function<void()>& thread);
const std::string& LastError();

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_
