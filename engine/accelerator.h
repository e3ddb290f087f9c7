// The interface of a device with memory and queues of its own. The CPU has no
// Accelerator: its memory is the host's. CUDA's is in libsluice_cuda.so, which
// is loaded when a session first asks for a GPU (engine/module.cc).
#ifndef SLUICE_ENGINE_ACCELERATOR_H_
#define SLUICE_ENGINE_ACCELERATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Work recorded once, to be run again with the same addresses.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Adds the work to the compute queue.
  virtual Status Launch() = 0;
};

// A place in a queue's work, which others can wait for.
class QueueEvent {
 public:
  virtual ~QueueEvent() = default;
  // Waits on the host, on any thread (it may change the accelerator that the
  // thread Uses); takes no reports.
  virtual Status Wait() const = 0;
};

// One device. One thread at a time may call it, and each thread must call Use
// before other functions; if runs or sessions share the device, a thread must
// hold a Turn. Work of one queue is done in the order it was added; a call that
// adds work does not wait for it, and a later error is returned by a later call
// that waits.
class Accelerator {
 public:
  enum Queue : uint8_t {
    kCompute,  // kernels
    kCopyIn,   // feeds, beside the last step's kernels
    kCopyOut,  // fetches, beside the next step's
  };
  static constexpr int kQueues = 3;
  struct MemoryInfo {
    size_t available = 0, total = 0;  // bytes
  };
  using Event = std::shared_ptr<const QueueEvent>;

  // Holds others off for a scope, so that what is added to the queues in it
  // stays together. May be nested. Not while another part is waited for.
  class Turn {
   public:
    explicit Turn(const Accelerator& accelerator) : lock_(accelerator.turns_) {}

   private:
    const std::lock_guard<std::recursive_mutex> lock_;
  };

  Accelerator() = default;
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;
  virtual ~Accelerator() = default;
  // "NVIDIA H200, compute capability 9.0, 139.8 GiB"
  virtual std::string Describe() const = 0;
  virtual MemoryInfo memory() const = 0;

  // Makes this the calling thread's device.
  virtual Status Use() = 0;

  // Device memory, aligned to at least kAlignment and freed with the last
  // copy. Resource exhaustion says what was wanted and what there is.
  virtual Result<std::shared_ptr<void>> Allocate(size_t bytes) = 0;
  // Host memory that the device copies from and to by itself.
  virtual Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) = 0;

  // The queue as StepContext::stream.
  virtual void* stream(Queue queue) const = 0;
  // `pinned` must stay as it is until the copy is done.
  virtual Status CopyIn(Queue queue, void* device, const void* pinned,
                        size_t bytes) = 0;
  virtual Status CopyOut(Queue queue, void* pinned, const void* device,
                         size_t bytes) = 0;
  // Copies within the device's memory, by the compute queue.
  virtual Status CopyWithin(void* to, const void* from, size_t bytes) = 0;
  // Whether this device copies from the other's memory without the host's: a
  // peer that it has access to, or the same device. Uses this one.
  virtual bool Reaches(const Accelerator& other) = 0;
  // Copies from the memory of an accelerator that this one reaches.
  virtual Status CopyFrom(const Accelerator& other, Queue queue, void* to,
                          const void* from, size_t bytes) = 0;

  virtual Result<Event> MakeEvent() = 0;
  // An event stands for the work added so far; before that, for none. What is
  // recorded while work is captured stands for its place in each later launch.
  virtual Status Record(const Event& event, Queue queue) = 0;
  virtual Status Wait(const Event& event, Queue queue) = 0;  // the queue does
  virtual Status WaitOnHost(const Event& event) = 0;
  // Seconds from one event to the other by the device's clock; waits for both.
  virtual Result<double> SecondsBetween(const Event& begin,
                                        const Event& end) = 0;
  // Waits for all queues.
  virtual Status Synchronize() = 0;
  // Waits for all queues where no error can be returned: it is left for a later
  // call.
  virtual void Drain() = 0;

  // From now on calls that wait on the host ask `report` for an error and
  // return it, passed through `blame`. If several reports have one, that of the
  // first watched is returned; the others are dropped.
  virtual void Watch(std::function<Status(const Status&)> blame,
                     std::shared_ptr<WorkReport> report) = 0;

  // BeginCapture: work added to the compute queue from then on is recorded, not
  // run.
  enum Captured : uint8_t {
    kAlone,
    // Also what is added to other queues, of any devices, once they have waited
    // for an event of a queue that is recorded. Events are then places in this
    // work and nowhere else. All must have been waited for by the compute queue
    // when the capture ends.
    kTogether,
  };
  virtual Status BeginCapture(Captured what) = 0;
  virtual Result<std::unique_ptr<CapturedWork>> EndCapture() = 0;

 private:
  mutable std::recursive_mutex turns_;
};

// Opens the device of an index. With `shared`, indices beyond the machine's
// devices are further logical devices on those that there are.
using AcceleratorOpener =
    std::function<Result<std::unique_ptr<Accelerator>>(int index, bool shared)>;

// Makes the devices of a type available, or replaces how they are opened.
void RegisterAccelerators(DeviceType type, AcceleratorOpener opener);

// Loads the type's module if nothing is registered for it. Unavailable says in
// one line what is missing.
Result<std::unique_ptr<Accelerator>> OpenAccelerator(DeviceType type, int index,
                                                     bool shared);

}  // namespace sluice

#endif  // SLUICE_ENGINE_ACCELERATOR_H_
