// The emulation's streams, events and captures over several devices: what CUDA
// forbids is refused, and what a step lacks shows.
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda {
namespace {

// Two streams on two devices, and a number on each.
struct Pair {
  cudaStream_t streams[2] = {};
  cudaEvent_t events[2] = {};
  int* numbers[2] = {};

  explicit Pair(uint64_t peers = ~uint64_t{0}) {
    emulation::SetMachine({.gpus = 2, .peers = peers});
    for (int d = 0; d < 2; ++d) {
      cudaSetDevice(d);
      cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking);
      cudaEventCreateWithFlags(&events[d], cudaEventDefault);
      void* memory = nullptr;
      cudaMalloc(&memory, sizeof(int));
      numbers[d] = static_cast<int*>(memory);
      cudaMemsetAsync(numbers[d], 0, sizeof(int), streams[d]);
      cudaStreamSynchronize(streams[d]);
    }
    cudaSetDevice(0);
  }
  ~Pair() {
    for (int d = 0; d < 2; ++d) {
      cudaStreamDestroy(streams[d]);
      cudaEventDestroy(events[d]);
      cudaFree(numbers[d]);
    }
    cudaSetDevice(0);
    emulation::SetOrder(emulation::Order::kForward);
    emulation::SetMachine({});
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // The first byte of a device's number, when all is done.
  int Read(int device) {
    int number = -1;
    cudaMemcpyAsync(&number, numbers[device], sizeof(int), cudaMemcpyDefault,
                    streams[device]);
    CHECK(cudaStreamSynchronize(streams[device]) == cudaSuccess);
    return number & 0xff;
  }
  // Sets the first one's to 7 and copies it to the second's, with an edge
  // between the two, which the other stream enters the capture by, or without.
  cudaError_t Capture(bool edge, bool join, cudaGraph_t* graph) {
    cudaSetDevice(0);
    cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(events[0], streams[0]);
    if (!edge) cudaStreamWaitEvent(streams[1], events[0]);
    cudaMemsetAsync(numbers[0], 7, sizeof(int), streams[0]);
    cudaEventRecord(events[0], streams[0]);
    if (edge) cudaStreamWaitEvent(streams[1], events[0]);
    cudaMemcpyAsync(numbers[1], numbers[0], sizeof(int), cudaMemcpyDefault,
                    streams[1]);
    cudaEventRecord(events[1], streams[1]);
    if (join) cudaStreamWaitEvent(streams[0], events[1]);
    return cudaStreamEndCapture(streams[0], graph);
  }
};

TEST_CASE("a capture of two devices' streams is one graph with its edges") {
  for (const bool edge : {true, false}) {
    for (const emulation::Order order :
         {emulation::Order::kForward, emulation::Order::kReversed}) {
      Pair pair;
      emulation::SetOrder(order);
      cudaGraph_t graph = nullptr;
      REQUIRE(pair.Capture(edge, /*join=*/true, &graph) == cudaSuccess);
      cudaGraphExec_t executable = nullptr;
      CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
      CHECK(pair.Read(1) == 0);  // recorded, not run
      CHECK(cudaGraphLaunch(executable, pair.streams[0]) == cudaSuccess);
      CHECK(cudaStreamSynchronize(pair.streams[0]) == cudaSuccess);
      // Without the edge the copy may come first.
      const bool missed = !edge && order == emulation::Order::kReversed;
      CHECK(pair.Read(1) == (missed ? 0 : 7));
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
    }
  }
}

TEST_CASE("a capture ends joined, and its events are not for others") {
  Pair pair;
  cudaGraph_t graph = nullptr;
  CHECK(pair.Capture(true, /*join=*/false, &graph) ==
        cudaErrorStreamCaptureUnjoined);
  // The streams are free again, the event is a captured one.
  CHECK(cudaStreamSynchronize(pair.streams[1]) == cudaSuccess);
  CHECK(cudaEventSynchronize(pair.events[1]) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(pair.streams[0], pair.events[1]) ==
        cudaErrorCapturedEvent);
  // One that is recorded outside is no edge of a capture.
  CHECK(cudaEventRecord(pair.events[1], pair.streams[1]) == cudaSuccess);
  cudaStreamBeginCapture(pair.streams[0], cudaStreamCaptureModeThreadLocal);
  CHECK(cudaStreamWaitEvent(pair.streams[0], pair.events[1]) ==
        cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(pair.streams[0], &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  // Two captures do not become one.
  cudaStreamBeginCapture(pair.streams[0], cudaStreamCaptureModeThreadLocal);
  cudaStreamBeginCapture(pair.streams[1], cudaStreamCaptureModeThreadLocal);
  CHECK(cudaEventRecord(pair.events[1], pair.streams[1]) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(pair.streams[0], pair.events[1]) ==
        cudaErrorStreamCaptureMerge);
  for (cudaStream_t stream : pair.streams) {
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaGraphDestroy(graph);
  }
}

void Store(int* to) {
  *to = 0x01010101;
}

TEST_CASE("streams, events and copies are of their devices") {
  Pair pair(/*peers=*/2);  // 0 may reach 1
  cudaLaunchConfig_t config = {dim3(1), dim3(1), 0, pair.streams[1]};
  CHECK(cudaLaunchKernelEx(&config, Store, pair.numbers[1]) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(pair.events[0], pair.streams[1]) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  config.stream = pair.streams[0];
  CHECK(cudaLaunchKernelEx(&config, Store, pair.numbers[1]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(pair.streams[0]) == cudaSuccess);
  CHECK(pair.Read(1) == 1);
  cudaSetDevice(1);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessUnsupported);
}

// An event that is awaited before it is recorded is passed.
TEST_CASE("a stream waits for what an event stood for when it was asked to") {
  Pair pair;
  CHECK(cudaStreamWaitEvent(pair.streams[1], pair.events[0]) == cudaSuccess);
  cudaMemsetAsync(pair.numbers[0], 7, sizeof(int), pair.streams[0]);
  CHECK(cudaEventRecord(pair.events[0], pair.streams[0]) == cudaSuccess);
  cudaMemcpyAsync(pair.numbers[1], pair.numbers[0], sizeof(int),
                  cudaMemcpyDefault, pair.streams[1]);
  CHECK(pair.Read(1) == 0);
  CHECK(cudaStreamWaitEvent(pair.streams[1], pair.events[0]) == cudaSuccess);
  cudaMemcpyAsync(pair.numbers[1], pair.numbers[0], sizeof(int),
                  cudaMemcpyDefault, pair.streams[1]);
  CHECK(pair.Read(1) == 7);
}

}  // namespace
}  // namespace sluice::cuda
