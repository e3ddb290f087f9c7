// The emulation of CUDA's execution model itself: right kernels run, and the
// mistakes it is there to find are found.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda {
namespace {

using emulation::kOrders;
using emulation::Order;

// Each block adds up its numbers in shared memory. Without the barrier a thread
// reads what its neighbour may not have written.
template <bool kWithBarrier>
__global__ void NeighbourSum(const float* x, float* y) {
  float* values = SharedMemory<float>();
  const unsigned t = threadIdx.x;
  values[t] = x[GlobalThread()];
  if (kWithBarrier) Barrier();
  y[GlobalThread()] = values[t] + values[(t + 1) % blockDim.x];
}

template <bool kWithBarrier>
std::vector<float> NeighbourSums(Order order) {
  emulation::SetOrder(order);
  std::vector<float> x(3 * 48), y(x.size());
  std::iota(x.begin(), x.end(), 1.0f);
  CHECK(Launch("NeighbourSum", {3, 48, 48 * sizeof(float)}, nullptr,
               NeighbourSum<kWithBarrier>, x.data(), y.data())
            .ok());
  return y;
}

TEST_CASE("a kernel with its barrier gives the same in every order") {
  for (Order order : kOrders) {
    const std::vector<float> y = NeighbourSums<true>(order);
    CHECK(y[0] == 1 + 2);
    CHECK(y[47] == 48 + 1);
    CHECK(y[143] == 144 + 97);
  }
}

TEST_CASE("a missing barrier shows: poison, and results that differ") {
  const std::vector<float> forward = NeighbourSums<false>(Order::kForward);
  const std::vector<float> reversed = NeighbourSums<false>(Order::kReversed);
  const std::vector<float> shuffled = NeighbourSums<false>(Order::kShuffled);
  CHECK(std::isnan(forward[0]));
  CHECK(forward[47] == 48 + 1);
  CHECK(reversed[0] == 1 + 2);
  CHECK(std::isnan(reversed[47]));
  const auto nans = [](const std::vector<float>& y) {
    return std::count_if(y.begin(), y.end(),
                         [](float v) { return std::isnan(v); });
  };
  CHECK(nans(shuffled) > 3);
}

// A block's shared memory is poisoned anew: nothing comes from the last block.
__global__ void ReadFirst(float* y) {
  float* value = SharedMemory<float>();
  y[blockIdx.x] = *value;
  *value = 1;
}
TEST_CASE("shared memory holds nothing when a block begins") {
  std::vector<float> y(4);
  CHECK(Launch("ReadFirst", {4, 1, sizeof(float)}, nullptr, ReadFirst, y.data())
            .ok());
  for (float v : y) CHECK(std::isnan(v));
}

__global__ void HalfBarrier() {
  if (threadIdx.x < 32) Barrier();
}
TEST_CASE("a barrier that some threads do not reach is an error") {
  for (Order order : kOrders) {
    emulation::SetOrder(order);
    const Status status = Launch("HalfBarrier", {2, 64}, nullptr, HalfBarrier);
    CHECK(status.message().find("CUDA, kernel 'HalfBarrier': in block (") !=
          std::string::npos);
    CHECK(status.message().find("32 of 64 threads reached a barrier, (32,0,0) "
                                "did not") != std::string::npos);
  }
  // And the emulation works on.
  CHECK(NeighbourSums<true>(Order::kForward)[0] == 3);
}

__global__ void AbsentLanes(int* y) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = ShuffleXor(1, 1);
}
__global__ void PartialWarp(int* y) {
  y[threadIdx.x] = ShuffleXor(1, 1);
}
__global__ void ShuffleBesideVote(int* y) {
  const bool even = threadIdx.x % 2 == 0;
  y[threadIdx.x] =
      even ? ShuffleXor(1, 1) : static_cast<int>(__ballot_sync(kAllLanes, 1));
}
TEST_CASE("a shuffle with absent lanes is an error") {
  std::vector<int> y(64);
  for (Order order : kOrders) {
    emulation::SetOrder(order);
    const Status absent =
        Launch("AbsentLanes", {1, 64}, nullptr, AbsentLanes, y.data());
    CHECK(absent.message().find("'AbsentLanes'") != std::string::npos);
    CHECK(absent.message().find("with the lanes 0xffffffff waits for lane 16, "
                                "which is not there") != std::string::npos);
    const Status partial =
        Launch("PartialWarp", {1, 40}, nullptr, PartialWarp, y.data());
    CHECK(partial.message().find("waits for lane 8, which is not there") !=
          std::string::npos);
    CHECK_FALSE(Launch("ShuffleBesideVote", {1, 32}, nullptr, ShuffleBesideVote,
                       y.data())
                    .ok());
  }
}

__global__ void OutsideMask(int* y) {
  const unsigned low = 0x0000ffffu;
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(low, 1, 20);
}
TEST_CASE("a shuffle from a lane outside its mask is an error") {
  std::vector<int> y(32);
  const Status status =
      Launch("OutsideMask", {1, 32}, nullptr, OutsideMask, y.data());
  CHECK(status.message().find("takes from lane 20, none of them") !=
        std::string::npos);
}

__global__ void WarpSum(const double* x, double* y) {
  double sum = x[GlobalThread()];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    sum += ShuffleXor(sum, lanes);
  }
  y[GlobalThread()] = sum;
}
TEST_CASE("shuffles of a butterfly add up a warp, in each warp its own") {
  std::vector<double> x(2 * 96), y(x.size());
  std::iota(x.begin(), x.end(), 0.0);
  for (Order order : kOrders) {
    emulation::SetOrder(order);
    CHECK(
        Launch("WarpSum", {2, 96}, nullptr, WarpSum, x.data(), y.data()).ok());
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t first = i / 32 * 32;
      CHECK(y[i] == static_cast<double>(32 * first + 31 * 16));
    }
  }
}

__global__ void Ballots(unsigned* y) {
  y[threadIdx.x] = __ballot_sync(kAllLanes, threadIdx.x % 3 == 0);
  // Half of a warp among itself, the other half at something else.
  if (threadIdx.x < 16) {
    y[threadIdx.x] ^= __ballot_sync(0x0000ffffu, threadIdx.x == 5);
  } else {
    __syncwarp(0xffff0000u);
  }
}
TEST_CASE("a vote has a bit for each lane of the mask") {
  unsigned thirds = 0;
  for (int i = 0; i < 32; i += 3) thirds |= 1u << i;
  for (Order order : kOrders) {
    emulation::SetOrder(order);
    std::vector<unsigned> y(32);
    CHECK(Launch("Ballots", {1, 32}, nullptr, Ballots, y.data()).ok());
    for (int i = 0; i < 32; ++i) {
      CHECK(y[i] == (i < 16 ? thirds ^ 1u << 5 : thirds));
    }
  }
}

// In which order threads come by, as atomic operations count them.
__global__ void Arrivals(int* next, int* at) {
  at[GlobalThread()] = atomicAdd(next, 1);
}
std::vector<int> ArrivalsIn(Order order) {
  emulation::SetOrder(order);
  int next = 0;
  std::vector<int> at(2 * 64);
  CHECK(Launch("Arrivals", {2, 64}, nullptr, Arrivals, &next, at.data()).ok());
  CHECK(std::set<int>(at.begin(), at.end()).size() == at.size());
  return at;
}
TEST_CASE("threads come forward, reversed, or shuffled anew each launch") {
  const std::vector<int> forward = ArrivalsIn(Order::kForward);
  CHECK(std::is_sorted(forward.begin(), forward.end()));
  std::vector<int> reversed = ArrivalsIn(Order::kReversed);
  CHECK(std::is_sorted(reversed.rbegin(), reversed.rend()));
  const std::vector<int> shuffled = ArrivalsIn(Order::kShuffled);
  CHECK_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  CHECK(shuffled != ArrivalsIn(Order::kShuffled));
}

TEST_CASE("fewer blocks than asked for do as many steps of the grid") {
  emulation::SetOrder(Order::kForward);
  emulation::SetMostBlocks(1);
  const std::vector<float> y = NeighbourSums<true>(Order::kForward);
  emulation::SetMostBlocks(0);
  CHECK(y[0] == 3);
  CHECK(y[48] == 0);  // this kernel does not loop
}

TEST_CASE("a launch that no device would take is an error") {
  const Status status = Launch("HalfBarrier", {1, 2048}, nullptr, HalfBarrier);
  CHECK(status.message().find("2048 threads") != std::string::npos);
  CHECK(Launch("HalfBarrier", {0, 64}, nullptr, HalfBarrier).ok());
}

}  // namespace
}  // namespace sluice::cuda
