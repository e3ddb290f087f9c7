// Steps that meet on their devices' queues (engine/device_group.h). Queued
// collectives compare nothing and do not say why another worker is missing, so
// workers agree on each run before it begins, on the host.
#ifndef SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_
#define SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device_group.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// How all workers add the next run to their devices' queues. NCCL requires them
// to do it alike: if one replays a recording all do, and each the one that was
// made together ("Using NCCL with CUDA Graphs" in its user guide).
enum class DeviceRun : uint8_t {
  kAdd,     // kernel by kernel
  kRecord,  // the same work, to be replayed; DeviceMeeting::Recorded follows
  kReplay,
};

// A worker's state for the next run.
struct DeviceRunOffer {
  // A line for each of its exchanges, in order.
  std::string_view exchanges;
  // The number of the worker's recording; 0: none.
  uint64_t recorded = 0;
  // Whether the run may be recorded, and replayed.
  bool may_record = false;
  // The number of consecutive runs that the worker could not replay because the
  // others had another recording, or none. After some all make a new one.
  uint32_t missed = 0;
};

class DeviceMeeting {
 public:
  virtual ~DeviceMeeting() = default;

  // The device whose queue it is: "/gpu:0".
  virtual const std::string& device() const = 0;
  virtual DeviceGroup& group() = 0;

  // To be called by all workers before each run that meets; it is a collective
  // of the Collective that this belongs to. If their exchanges differ, all get
  // an error that names two sides.
  virtual Result<DeviceRun> Agree(const DeviceRunOffer& mine) = 0;
  // Returns the recording's number, the same on all workers; 0 if one of them
  // has failed to make it: then none may replay it.
  virtual Result<uint64_t> Recorded(bool made) = 0;
  // The status of the runs so far, asked once their work is over: ok, or why it
  // was ended. The error names a worker that is gone.
  virtual Status Outcome() = 0;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_
