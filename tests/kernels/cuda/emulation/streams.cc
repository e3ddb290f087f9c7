// The emulation's streams, events and graphs.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulation/machine.h"

namespace emulation = sluice::cuda::emulation;
using emulation::Lock;
using emulation::Memory;
using Clock = std::chrono::steady_clock;

namespace sluice::cuda::emulation {
namespace {

// What a graph does; `after` are places in the graph's nodes.
struct Node {
  Work work;
  int device = 0;
  std::vector<size_t> after;
};
struct Capture {
  cudaStream_t origin = nullptr;
  std::vector<cudaStream_t> streams;
  std::vector<Node> nodes;
};
using Nodes = std::vector<Node>;

// A stream's work. Events know it, too, and what waits for them: they may
// outlive the stream.
struct Queue {
  int device = 0;
  std::deque<Work> work;
  size_t added = 0, done = 0;
};

}  // namespace
}  // namespace sluice::cuda::emulation

struct CUstream_st {
  const std::shared_ptr<emulation::Queue> queue =
      std::make_shared<emulation::Queue>();
  // While it is captured: by what, and which nodes its next one comes after.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> after;
};
struct CUevent_st {
  int device = 0;
  std::shared_ptr<emulation::Queue> queue;  // null: never recorded
  size_t place = 0;  // how much of its work the event is behind
  std::shared_ptr<Clock::time_point> reached;
  // Of an event that was last recorded while captured.
  bool captured = false;
  std::weak_ptr<emulation::Capture> capture;
  std::vector<size_t> after;
};
struct CUgraph_st {
  std::shared_ptr<const emulation::Nodes> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const emulation::Nodes> nodes;
};

namespace sluice::cuda::emulation {
namespace {

int64_t graph_launches = 0;
int queried_device = -1;
// Captures are of one thread (cudaStreamCaptureModeThreadLocal).
thread_local int captures = 0;

void Do(const Work& work, int device) {
  if (Lost() != cudaSuccess) return;  // nobody is there to do it
  cudaError_t error = Failing("work");
  if (error == cudaSuccess) {
    Memory().Grant(work.copies ? DeviceMemory::kAll : ReachOf(device));
    error = work.task();
  }
  NoteFailure(error);
}

// Does a stream's work up to a place.
void RunUpTo(Queue& queue, size_t place) {
  const DeviceMemory::Access access(Memory());
  while (queue.done < place) {
    const Work work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    Do(work, queue.device);
  }
}

// In some order that the edges allow: a missing one shows as a difference.
void RunNodes(const Nodes& nodes) {
  std::vector<bool> done(nodes.size());
  const auto may_run = [&](size_t i) {
    return std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                       [&](size_t before) { return done[before]; });
  };
  std::vector<int> left = InOrder(static_cast<int>(nodes.size()));
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), may_run);
    Do(nodes[*next].work, nodes[*next].device);
    done[*next] = true;
    left.erase(next);
  }
}

// Ends it for all its streams, whatever becomes of it.
std::shared_ptr<Capture> Release(cudaStream_t origin) {
  const std::shared_ptr<Capture> capture = origin->capture;
  for (cudaStream_t stream : capture->streams) stream->capture = nullptr;
  return capture;
}

// All that comes before `last`, and these.
std::set<size_t> UpTo(const Nodes& nodes, const std::vector<size_t>& last) {
  std::set<size_t> before(last.begin(), last.end());
  for (size_t i = nodes.size(); i-- > 0;) {
    if (before.count(i) == 0) continue;
    before.insert(nodes[i].after.begin(), nodes[i].after.end());
  }
  return before;
}

}  // namespace

bool Capturing() {
  return captures > 0;
}

bool Recorded(cudaStream_t stream) {
  const Lock lock;
  return stream != nullptr && stream->capture != nullptr;
}

int64_t GraphLaunches() {
  const Lock lock;
  return graph_launches;
}

int QueriedDevice() {
  const Lock lock;
  return queried_device;
}

cudaError_t Add(cudaStream_t stream, Work work) {
  const Lock lock;
  if (stream == nullptr) {
    const DeviceMemory::Access access(Memory());
    Memory().Grant(work.copies ? DeviceMemory::kAll : ReachOf(CurrentDevice()));
    return work.task();
  }
  if (stream->capture != nullptr) {
    Nodes& nodes = stream->capture->nodes;
    nodes.push_back({std::move(work), stream->queue->device, stream->after});
    stream->after = {nodes.size() - 1};
  } else {
    stream->queue->work.push_back(std::move(work));
    ++stream->queue->added;
  }
  return cudaSuccess;
}

cudaError_t Enqueue(const cudaLaunchConfig_t& config,
                    std::function<void()> thread) {
  const cudaError_t error = Failing("cudaLaunchKernelEx");
  if (error != cudaSuccess) return error;
  if (config.stream != nullptr &&
      config.stream->queue->device != CurrentDevice()) {
    return cudaErrorInvalidResourceHandle;
  }
  return Add(config.stream, {[config, thread = std::move(thread)] {
               return RunGrid(config, thread);
             }});
}

}  // namespace sluice::cuda::emulation

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  SLUICE_MAY_FAIL();
  *stream = new CUstream_st;
  (*stream)->queue->device = emulation::CurrentDevice();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock;
  emulation::RunUpTo(*stream->queue, stream->queue->added);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (stream != nullptr) {
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    emulation::RunUpTo(*stream->queue, stream->queue->added);
  }
  return emulation::TakeFailure();
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  const Lock lock;
  emulation::queried_device = emulation::CurrentDevice();
  SLUICE_MAY_FAIL();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  SLUICE_MAY_FAIL();
  *event = new CUevent_st;
  (*event)->device = emulation::CurrentDevice();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  if (event->device != stream->queue->device) {
    return cudaErrorInvalidResourceHandle;
  }
  event->captured = stream->capture != nullptr;
  event->capture = stream->capture;
  event->after = stream->after;
  event->queue = nullptr;
  if (event->captured) return cudaSuccess;
  auto reached = std::make_shared<Clock::time_point>();
  const cudaError_t error = emulation::Add(stream, {[reached] {
                                             *reached = Clock::now();
                                             return cudaSuccess;
                                           }});
  event->queue = stream->queue;
  event->place = stream->queue->added;
  event->reached = std::move(reached);
  return error;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  const Lock lock;
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  return emulation::Add(stream, {[event] {
                          event->reached =
                              std::make_shared<Clock::time_point>(Clock::now());
                          return cudaSuccess;
                        }});
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (event->captured) return cudaErrorCapturedEvent;
  if (event->queue != nullptr) {
    emulation::RunUpTo(*event->queue, event->place);
  }
  return emulation::TakeFailure();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  SLUICE_MAY_FAIL();
  if (begin->reached == nullptr || end->reached == nullptr) {
    return cudaErrorInvalidValue;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(*end->reached - *begin->reached)
          .count();
  return cudaSuccess;
}
// An event that was never recorded is passed. One of a capture is an edge
// within it, and brings the stream into it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (event->captured) {
    const auto capture = event->capture.lock();
    if (capture == nullptr) return cudaErrorCapturedEvent;
    if (stream->capture == nullptr) {
      stream->capture = capture;
      stream->after.clear();
      capture->streams.push_back(stream);
    }
    if (stream->capture != capture) return cudaErrorStreamCaptureMerge;
    stream->after.insert(stream->after.end(), event->after.begin(),
                         event->after.end());
    return cudaSuccess;
  }
  if (stream->capture != nullptr) return cudaErrorStreamCaptureIsolation;
  return emulation::Add(stream, {[behind = event->queue, place = event->place] {
                          if (behind != nullptr)
                            emulation::RunUpTo(*behind, place);
                          return cudaSuccess;
                        }});
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = std::make_shared<emulation::Capture>();
  stream->capture->origin = stream;
  stream->capture->streams = {stream};
  stream->after.clear();
  ++emulation::captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  if (stream->capture == nullptr || stream->capture->origin != stream) {
    return cudaErrorInvalidValue;
  }
  const auto capture = emulation::Release(stream);
  --emulation::captures;
  SLUICE_MAY_FAIL();
  const auto joined = emulation::UpTo(capture->nodes, stream->after);
  for (size_t i = 0; i < capture->nodes.size(); ++i) {
    if (joined.count(i) == 0) return cudaErrorStreamCaptureUnjoined;
  }
  *graph = new CUgraph_st{
      std::make_shared<const emulation::Nodes>(std::move(capture->nodes))};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  SLUICE_MAY_FAIL();
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  ++emulation::graph_launches;
  return emulation::Add(stream, {[nodes = executable->nodes] {
                          emulation::RunNodes(*nodes);
                          return cudaSuccess;
                        }});
}
