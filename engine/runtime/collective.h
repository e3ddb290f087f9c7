// Collectives of the workers of a job: each worker calls the same ones in the
// same order, and each waits for the others.
#ifndef SLUICE_ENGINE_RUNTIME_COLLECTIVE_H_
#define SLUICE_ENGINE_RUNTIME_COLLECTIVE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/dtype.h"
#include "engine/reduction.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
class DeviceMeeting;
}

namespace SLUICE_PUBLIC sluice {

// A collective to be done on `data`, in place.
struct CollectiveCall {
  enum class Verb : uint8_t {
    kAllReduce,
    kReduce,  // an all-reduce; the data of all but the root becomes zeros
    kReduceScatter,
    kBroadcast,
    kAllGather,  // each rank's part is in its place in `data`
    kAllToAll
  };
  Verb verb = Verb::kAllReduce;
  std::string_view name = {};
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  int64_t count = 0;  // elements of data
  Reduction how = Reduction::kSum;
  int64_t row = 1;  // of kReduceScatter
  int root = 0;     // of kBroadcast and kReduce

  int64_t bytes() const { return count * static_cast<int64_t>(SizeOf(dtype)); }
};

// One worker's membership of a job. One thread at a time. `name` identifies a
// collective: a call with another name, dtype, count, reduction or root on
// another worker is an error on all workers, and so is a worker that is gone.
// After an error the data is unspecified and every later call returns that
// error. Calls do not throw: out of memory is kResourceExhausted.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;  // this worker, from 0
  virtual int size() const = 0;  // the number of workers

  // The sum or mean over the workers of `count` elements in the host's memory,
  // in place; the same bits on every worker. Floating dtypes, or int32 and
  // int64 with kSum.
  virtual Status AllReduce(std::string_view name, DType dtype, void* data,
                           int64_t count, Reduction how) = 0;
  // The sum over the `leaves` of a tree, added in the tree's order
  // (engine/runtime/subtrees.h): the same bits for any size(). `leaves` is a
  // power of two and not less than size(). `sums` are the sums of the subtrees
  // (SubtreesOf) of this worker's LeavesOf, `count` elements each in the host's
  // memory; `result`, written on every worker, may be one of them. The dtypes
  // are those of AllReduce.
  virtual Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                         std::span<const void* const> sums, void* result,
                         int64_t count) = 0;
  // The first half of an all-reduce, for the same dtypes. `data` is rows of
  // `row` elements each, 1 or more, `count` elements together. This worker's
  // own rows become the sum or mean over the workers; the other rows' values
  // are lost. Ranks own consecutive rows in order of rank: equally many each,
  // and the first ranks one more where the rows do not divide evenly.
  virtual Status ReduceScatter(std::string_view name, DType dtype, void* data,
                               int64_t count, int64_t row, Reduction how) = 0;
  // Copies the `bytes` bytes of worker `root` into `data` on every worker.
  virtual Status Broadcast(std::string_view name, void* data, int64_t bytes,
                           int root) = 0;
  // Gathers `each` bytes from every worker: all[rank * each, ...) becomes those
  // of `rank`, for all size() ranks. `mine` may be its own place in `all`.
  virtual Status AllGather(std::string_view name, const void* mine,
                           int64_t each, void* all) = 0;
  // Sends a block of `each` bytes from every worker to every other. `mine` has
  // a block for each worker, and `all` receives each worker's block for this
  // one, both by rank. `mine` may be `all`; else the two must not overlap.
  virtual Status AllToAll(std::string_view name, const void* mine, int64_t each,
                          void* all) = 0;
  // Returns when every worker has called it.
  virtual Status Barrier(std::string_view name) = 0;

  // Does the collective that `call` describes, by the functions above.
  Status Do(const CollectiveCall& call);
  // Start and Wait do a collective in two halves, while this worker computes.
  // The data and the name are in use from a Start that succeeds until the Wait
  // for the same data; of several starts with the same data Wait is for the
  // earliest. Any number may be under way; they are done in the order of their
  // starts, before any other collective. Any thread may call these, but one
  // Start at a time. The default does everything in Start.
  virtual Status Start(const CollectiveCall& call) { return Do(call); }
  virtual Status Wait(const void* /*data*/) { return {}; }
  // Whether Wait(data) would return at once; if not, `waker` is woken when it
  // would.
  virtual bool IsOver(const void* /*data*/, Waker&) { return true; }

  // The collective of a named subset of these workers, with an order of calls
  // of its own. It lives as long as this one. Null where this worker is in no
  // subset of that name.
  virtual Collective* Subgroup(std::string_view) { return nullptr; }

  // Where steps meet on the workers' accelerators
  // (engine/runtime/device_meeting.h); null if they meet in the host's memory
  // alone.
  virtual DeviceMeeting* on_device() { return nullptr; }

  // The error that the next call would return if a worker is known to be gone;
  // else ok. Does not wait.
  virtual Status Check() { return {}; }

  // To be called by a worker that will make no more calls, for the reason `why`
  // from outside the group: the other workers' calls fail with `why` and its
  // code as soon as they can be told. Breaks the group; does nothing if it is
  // broken already.
  virtual void Leave(const Status& /*why*/) {}
  // Forms a broken group again, once nothing of it is in use: waits for the
  // other workers, who all call it, as at the beginning. After an error the
  // group is as broken as before. An elastic group does not wait for workers
  // that are gone, new ones may have come, rank and size are new, and rank 0 is
  // a worker with the most steps `done` (below 0: it has no state).
  virtual Status JoinAgain(int64_t /*done*/) {
    return Unimplemented("a group that is broken stays so");
  }
  // Whether workers may leave and come on the way.
  virtual bool elastic() const { return false; }
  // On rank 0 of an elastic group: whether new workers wait to come in, for
  // which all workers have to leave and join again.
  virtual bool called() const { return false; }

  // Seconds that these calls have kept their callers so far; 0 where that is
  // not measured.
  virtual double seconds() const { return 0; }
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_COLLECTIVE_H_
