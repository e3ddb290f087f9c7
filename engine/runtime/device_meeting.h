// Steps that meet on their devices' queues (engine/device_group.h). There
// nothing is compared, and nobody is told why another does not come: so workers
// agree on each run before it begins, on the host.
#ifndef SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_
#define SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_

#include <cstdint>
#include <string>

#include "engine/device_group.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// How all workers give their devices the run that comes. NCCL wants that to be
// alike: what one replays the others replay, and each the recording that was
// made together.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html
enum class DeviceRun : uint8_t {
  kAdd,     // kernel by kernel
  kRecord,  // the same work, to be replayed; DeviceMeeting::Recorded follows
  kReplay,
};

class DeviceMeeting {
 public:
  virtual ~DeviceMeeting() = default;

  // Whose queue it is: "/gpu:0".
  virtual const std::string& device() const = 0;
  virtual DeviceGroup& group() = 0;

  // All workers, before each run that meets, as a collective of the Collective
  // that this is of. `exchanges` is a line for each of the run's, in order:
  // where they differ all have an error that names two sides. `recorded` is the
  // number of this worker's recording of the run, 0 where it has none; without
  // `may_record` it is not to be used, and none is to be made.
  virtual Result<DeviceRun> Agree(const std::string& exchanges,
                                  uint64_t recorded, bool may_record) = 0;
  // The recording's number, the same on all workers; 0 where one has failed to
  // make it, which none may replay then.
  virtual Result<uint64_t> Recorded(bool made) = 0;
  // Of the runs so far, asked once their work is over: ok, or why it was ended.
  // Where a worker is gone the error names it.
  virtual Status Outcome() = 0;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_DEVICE_MEETING_H_
