// The processes that mpirun or srun has started, together through MPI.
#ifndef SLUICE_DIST_MPI_MPI_GROUP_H_
#define SLUICE_DIST_MPI_MPI_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/collective/call_queue.h"
#include "dist/collective/options.h"
#include "dist/mpi/calls.h"
#include "dist/mpi/long_waits.h"
#include "engine/dtype.h"
#include "engine/runtime/collective.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// MPI sums tensors of different names and lengths without a word. So before
// each collective all ranks compare two numbers made of its name, dtype, count,
// reduction and root; where these differ, every rank gets kFailedPrecondition
// that names two of them (agree.cc).
//
// What Group (dist/collective/group.h) has and this has not: a rank that dies
// ends the job, which is mpirun's doing; one that stops is waited for, however
// long; what goes to other hosts is not encrypted. The bits of a sum are those
// of the MPI, and the same on every rank; those of SumTree are Group's.
class MpiGroup final : public Collective {
 public:
  struct Options {
    // Whether ranks may talk to other hosts, which MPI does in the clear.
    bool allow_plaintext = false;
    // kAuto: where a core is left, since who waits in MPI keeps one busy.
    Overlap overlap = Overlap::kAuto;
    // Called by another thread, without a newline, with the collective that
    // this rank has been in for stall_note, and again each time that as much
    // more has passed: in a group by its first two ranks, one of which waits
    // for any other. May be empty.
    std::function<void(std::string_view)> stalled = {};
    std::chrono::milliseconds stall_note = std::chrono::seconds(10);
  };
  // Begins MPI and joins, by `calls`, which must outlive the group. Once in a
  // process. Ranks of different versions are an error on all.
  static Result<std::unique_ptr<MpiGroup>> Join(const MpiCalls& calls,
                                                const Options& options);
  // Joins by libsluice_mpi.so. kUnavailable says in a line why there is no MPI.
  // kInvalidArgument for a process of sluicerun's, which would be alone.
  // SLUICE_ALLOW_PLAINTEXT=1 allows plaintext, too.
  static Result<std::unique_ptr<MpiGroup>> Join(const Options& options);
  // Waits for the others to leave, too: those in a collective are told that
  // this rank has ended.
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const { return place_.local_rank; }
  int local_size() const { return place_.local_size; }

  Status AllReduce(std::string_view name, DType dtype, void* data,
                   int64_t count, Reduction how) override;
  // Every rank sends the sums of its subtrees to all, a piece at a time: n - 1
  // times a ring's bytes.
  Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                 std::span<const void* const> sums, void* result,
                 int64_t count) override;
  Status Broadcast(std::string_view name, void* data, int64_t bytes,
                   int root) override;
  Status AllGather(std::string_view name, const void* mine, int64_t each,
                   void* all) override;
  // Runs a whole all-reduce.
  Status ReduceScatter(std::string_view name, DType dtype, void* data,
                       int64_t count, int64_t row, Reduction how) override;
  Status AllToAll(std::string_view name, const void* mine, int64_t each,
                  void* all) override;
  Status Barrier(std::string_view name) override;
  Status Start(const CollectiveCall& call) override;
  Status Wait(const void* data) override;
  bool IsOver(const void* data, Waker& waker) override;
  Status Check() override;
  double seconds() const override { return queue_.seconds(); }

  // As Group::Split, by MPI_Comm_split: the part has a communicator, and so an
  // order, of its own, for another thread than this group's. One Split at a
  // time in a process. An error of the part names it, and does not break this
  // group.
  Status Split(std::string_view name, int color, int key = 0);
  MpiGroup* Subgroup(std::string_view name) override;
  // As Group::Follow.
  Result<int> Follow();

  // Waits until the others can be told, in parts of this, too.
  void Leave(const Status& failure) override;

 private:
  // The process, and the part of the job, that a group belongs to.
  struct Owner {
    int job_rank, job_size;  // this process among all
    int cores;               // this process's part of the host's
    std::string part;        // for errors: its name and ranks; or empty
  };
  // An all-reduce, as those must know it that take part with zeros.
  struct Sum {
    DType dtype;
    int64_t count;
    Reduction how;
  };
  // What a rank says it is at, where all have to know: as bytes, to other
  // processes of the same program.
  struct Account {
    static constexpr size_t kLongest = 240;

    int64_t joined = 0;   // 1: it is at nothing
    int64_t reduces = 0;  // 1: an all-reduce, which the next three are of
    int64_t dtype = 0, how = 0, count = 0;
    char text[kLongest] = {};

    std::string_view what() const;
    Sum sum() const;
    // What is wrong with what all are at, which takes memory where something
    // is. `differ`: that they are not all at the same, which what is cut off
    // may hide.
    static Status Compare(const std::vector<Account>& all, bool differ);
  };
  // Begins what one says that cannot go on.
  static constexpr std::string_view kFailed = "failed: ";

  MpiGroup(const MpiCalls& calls, const MpiPlace& place, Owner owner,
           Options options);

  static Status Said(const char* wrong);
  // The error with the name of the part that it comes from, if any.
  Status Known(Status error) const {
    return owner_.part.empty() || error.ok() ? error
                                             : error.WithContext(owner_.part);
  }

  // Runs a collective's body where all ranks are at the same, and `prepare` has
  // failed on none. Any error is that of all later calls.
  template <typename Signature, typename Prepare, typename Body>
  Status Collective(Signature signature, Prepare prepare, Body body,
                    const std::optional<Sum>& sum = {});
  // A collective's beginning: returns when all ranks are at it. `ready`: why
  // this one cannot go on, which is then everyone's error.
  Status Begin(const Status& ready, const std::string& signature,
               const std::optional<Sum>& sum = {}) REQUIRES(mutex_);
  // Whether started collectives run on the queue's thread.
  bool Beside() const;
  // The errors of these functions (agree.cc) do not name a part.
  Status Agree(const std::string& signature, const std::optional<Sum>& sum)
      REQUIRES(mutex_);
  // Fills accounts_.
  Status Exchange(const Account& own) REQUIRES(mutex_);
  // The end of an agreement on an all-reduce of which some have joined: `mine`,
  // or the error of one that has joined and cannot take part.
  Status AgreeOnRoom(const Status& mine) const;
  // What the ranks that do not follow yet do next; nullopt: all follow.
  Result<std::optional<Sum>> HearNext() REQUIRES(mutex_);
  Result<int> FollowToEnd() REQUIRES(mutex_);
  // The part; null where this rank is in none.
  Result<std::unique_ptr<MpiGroup>> FormPart(std::string_view name, int color,
                                             int key) REQUIRES(mutex_);
  Status Reduce(DType dtype, void* data, int64_t count, Reduction how);
  // Tells the others, here and in parts, that this rank will do no more: ok,
  // for it has ended.
  void End(const Status& failure);

  const MpiCalls& calls_;
  const MpiPlace place_;
  const Owner owner_;
  const Options options_;
  const std::unique_ptr<LongWaits> waits_;  // null: nobody is told
  mutable Mutex mutex_;
  Status broken_ GUARDED_BY(mutex_);
  uint64_t run_ GUARDED_BY(mutex_) = 0;  // collectives begun
  // By rank. Memory that an agreement under way has: for a rank that had to ask
  // for some, and had none, the others would wait.
  std::vector<Account> accounts_ GUARDED_BY(mutex_);
  // Changed by Split alone, which has no other of this group's calls beside.
  std::vector<std::pair<std::string, std::unique_ptr<MpiGroup>>> parts_;
  CallQueue queue_;  // ends before what it uses
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_MPI_MPI_GROUP_H_
