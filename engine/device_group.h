// The accelerators of a job's workers, one each, as they exchange data on their
// own queues: NCCL, of which libsluice_cuda.so has the calls
// (kernels/cuda/vendor/nccl_ranks.h).
#ifndef SLUICE_ENGINE_DEVICE_GROUP_H_
#define SLUICE_ENGINE_DEVICE_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/dtype.h"
#include "engine/kernel.h"
#include "engine/reduction.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// What all of them do together with device memory. What it means is said at
// Collective (engine/runtime/collective.h), but that nothing is compared:
// where workers are at different ones, sums are wrong, or they wait for ever.
struct DeviceExchange {
  enum Verb : uint8_t {
    kAllReduce,      // `count` elements of `in` to `out`, which may be one
    kAllGather,      // `count` bytes of `in`, from each to `out`
    kReduceScatter,  // this worker's `count` elements of the sum over `in`
    kAllToAll,       // `count` bytes to and from each
    kBroadcast,      // `count` bytes, the root's
    kReduce,         // `count` elements; zeros for all but the root
  };
  Verb verb = kAllReduce;
  DType dtype = DType::kFloat32;  // where elements are counted
  Reduction how = Reduction::kSum;
  int root = 0;
  int64_t count = 0;  // 1 or more
  const void* in = nullptr;
  void* out = nullptr;
};

// One worker's. Start and Wait by one thread at a time, whose device it is; the
// rest by any.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // Whether all have come. Nothing but this and Abort before.
  virtual Result<bool> Formed() = 0;

  // Adds it to the group's own queue, behind what `stream` has so far, which
  // goes on beside it: until the wait for `out` it is in use, and so is `in`.
  // Both may be recorded with the stream's work (Accelerator::BeginCapture).
  virtual Status Start(const DeviceExchange& exchange, void* stream) = 0;
  virtual Status Wait(const void* out, void* stream) = 0;

  // What the library has found wrong by itself, such as a connection that is
  // gone, or why it was aborted.
  virtual Status Check() = 0;
  // Ends what is under way, whatever it waits for, with unspecified results; no
  // more is begun. Returns at once.
  virtual void Abort(const Status& why) = 0;
};

struct DevicePlace {
  std::string id;  // DeviceGroups::make_id's, of one for all
  int device = 0;  // the index of this worker's
  int rank = 0, size = 1;
  bool beside = true;  // else on the streams themselves
};

// What a module has of them. Functions of the module, which is never unloaded.
struct DeviceGroups {
  // Unavailable says in a line why there can be none here.
  Status (*check)() = nullptr;
  Result<std::string> (*make_id)() = nullptr;
  // Begins to join; DeviceGroup::Formed says when that is done.
  Result<std::unique_ptr<DeviceGroup>> (*join)(const DevicePlace&) = nullptr;
};
// `groups` stays where it is.
void RegisterDeviceGroups(DeviceType type, const DeviceGroups* groups);

// The DeviceGroups of a device type's module, which is loaded if need be. The
// error is kUnavailable and says in one line what is missing.
Result<const DeviceGroups*> FindDeviceGroups(DeviceType type);

}  // namespace sluice

#endif  // SLUICE_ENGINE_DEVICE_GROUP_H_
