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

// A collective of all accelerators of the group, on device memory. The verbs
// mean what they do in Collective (engine/runtime/collective.h), but nothing is
// compared: if workers do different ones, sums are wrong, or all wait for ever.
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

// One worker's membership of the group. Start and Wait may be called by one
// thread at a time, which uses the device; the rest by any thread.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // Whether all workers have joined. Until then only this and Abort may be
  // called.
  virtual Result<bool> Formed() = 0;

  // Adds the exchange to the group's own queue, behind the work that `stream`
  // has so far; the stream goes on meanwhile. Until the wait for `out` both
  // `out` and `in` are in use. Start and Wait may be recorded with the stream's
  // work (Accelerator::BeginCapture).
  virtual Status Start(const DeviceExchange& exchange, void* stream) = 0;
  virtual Status Wait(const void* out, void* stream) = 0;

  // The error that the library has found by itself, such as a lost connection,
  // or why the group was aborted.
  virtual Status Check() = 0;
  // Ends exchanges under way, whatever they wait for, with unspecified results;
  // no more are begun. Returns at once.
  virtual void Abort(const Status& why) = 0;
};

struct DevicePlace {
  std::string id;  // from one worker's DeviceGroups::make_id, for all
  int device = 0;  // the index of this worker's
  int rank = 0, size = 1;
  bool beside = true;  // else on the streams themselves
};

// A module's functions for device groups. The module is never unloaded.
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
