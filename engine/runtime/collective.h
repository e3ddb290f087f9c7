// What the workers of a job do together: each calls the same collectives in the
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

// A collective that is to be done with `data`, in place.
struct CollectiveCall {
  enum class Verb : uint8_t {
    kAllReduce,
    kReduce,  // an all-reduce; what is not the root's becomes zeros
    kReduceScatter,
    kBroadcast,
    kAllGather,  // each rank's part is where it goes
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

// One worker's membership. One thread at a time. `name` says which collective
// it is: that of another name, dtype, count, reduction or root on another
// worker is an error on all of them, and so is a worker that is gone. After an
// error the data is unspecified and every later call returns that error. They
// throw nothing: memory that is not to be had is kResourceExhausted.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;  // this worker, from 0
  virtual int size() const = 0;  // how many there are

  // The sum or mean over the workers of `count` elements in the host's memory,
  // in place; the same bits on every worker. Floating dtypes, or int32 and
  // int64 with kSum.
  virtual Status AllReduce(std::string_view name, DType dtype, void* data,
                           int64_t count, Reduction how) = 0;
  // The sum over the leaves of a tree (engine/runtime/subtrees.h), a power of
  // two and not less than size(), in its order: the same bits for any size().
  // `sums` are those of the subtrees of this worker's LeavesOf, as SubtreesOf
  // says, of `count` elements each in the host's memory; `result`, for all, may
  // be one of them. Of the dtypes of AllReduce.
  virtual Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                         std::span<const void* const> sums, void* result,
                         int64_t count) = 0;
  // The first half of an all-reduce, of its dtypes. `data` is rows of `row`
  // elements each, 1 or more, `count` elements together; this worker's own rows
  // in it become the sum or mean, what the others hold is lost. Its own are one
  // behind another by rank: as many for each, and one more for the first ranks
  // where that does not come out even.
  virtual Status ReduceScatter(std::string_view name, DType dtype, void* data,
                               int64_t count, int64_t row, Reduction how) = 0;
  // The bytes of `root`, for all.
  virtual Status Broadcast(std::string_view name, void* data, int64_t bytes,
                           int root) = 0;
  // all[rank * each, ...) becomes the `each` bytes of that rank, of size()
  // together. `mine` may be where they go.
  virtual Status AllGather(std::string_view name, const void* mine,
                           int64_t each, void* all) = 0;
  // `mine` is `each` bytes for every worker, and `all` becomes those of every
  // worker for this one, by rank. `mine` may be `all`; else the two do not
  // overlap.
  virtual Status AllToAll(std::string_view name, const void* mine, int64_t each,
                          void* all) = 0;
  // Returns when every worker has called it.
  virtual Status Barrier(std::string_view name) = 0;

  // That collective, by the functions above.
  Status Do(const CollectiveCall& call);
  // The same in two halves, beside what this worker computes meanwhile: the
  // data and the name are in use from a start that succeeds until its wait,
  // which is of the data; of several with the same, of the one that was started
  // first. Any number may be under way; they are done in the order of their
  // starts, before any other collective. By any threads, but one start at a
  // time. The default does it all at the start.
  virtual Status Start(const CollectiveCall& call) { return Do(call); }
  virtual Status Wait(const void* /*data*/) { return {}; }
  // Whether that would return at once; if not, `waker` is woken when it would.
  virtual bool IsOver(const void* /*data*/, Waker&) { return true; }

  // The workers of a part of these, by its name: a collective of its own, with
  // an order of its own, that lives as long as this one. Null where this worker
  // is in none of that name.
  virtual Collective* Subgroup(std::string_view) { return nullptr; }

  // Where steps meet on the workers' accelerators
  // (engine/runtime/device_meeting.h); null: in the host's memory alone.
  virtual DeviceMeeting* on_device() { return nullptr; }

  // The error that the next call would return, if that is known: some worker is
  // gone. Waits for nothing.
  virtual Status Check() { return {}; }

  // For a worker that will call no more of these, for a reason outside them:
  // the others' fail with it and its code, as soon as they can be told. Breaks
  // the group; nothing where it is broken already.
  virtual void Leave(const Status& /*why*/) {}
  // Once it is broken and nothing of it is in use: meets the others, who all
  // call it, as at the beginning. After an error it is as broken as before.
  // Where it is elastic those that are gone are not waited for, others may have
  // come, rank and size are new, and rank 0 is one with the most steps `done`;
  // below 0: this worker has no state.
  virtual Status JoinAgain(int64_t /*done*/) {
    return Unimplemented("a group that is broken stays so");
  }
  // Whether workers may leave and come on the way.
  virtual bool elastic() const { return false; }
  // Of rank 0, where it is: whether some wait to come in, for which all have to
  // leave and join again.
  virtual bool called() const { return false; }

  // For how long these calls have kept their callers so far; 0 where that is
  // not measured.
  virtual double seconds() const { return 0; }
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_COLLECTIVE_H_
