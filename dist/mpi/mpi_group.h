// The processes that mpirun or srun has started, together through MPI.
#ifndef SLUICE_DIST_MPI_MPI_GROUP_H_
#define SLUICE_DIST_MPI_MPI_GROUP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dist/mpi/calls.h"
#include "engine/runtime/collective.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// MPI sums tensors of different names and lengths without a word. So before
// each collective all ranks compare two numbers made of its name, dtype, count,
// reduction and root; where these differ, every rank gets kFailedPrecondition
// that names two of them.
//
// What Group (dist/collective/group.h) has and this has not: a rank that dies
// ends the job, which is mpirun's doing; one that stops is waited for, however
// long; all is done where a step starts it, with nothing beside; what goes to
// other hosts is not encrypted. The bits of a sum are those of the MPI, and the
// same on every rank; those of SumTree are Group's.
class MpiGroup final : public Collective {
 public:
  struct Options {
    // Whether ranks may talk to other hosts, which MPI does in the clear.
    bool allow_plaintext = false;
  };
  // By `calls`, which outlive it. Begins MPI. Once in a process.
  static Result<std::unique_ptr<MpiGroup>> Join(const MpiCalls& calls,
                                                const Options& options);
  // The same with libsluice_mpi.so. Unavailable says in a line why there is no
  // MPI.
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
  // By a whole all-reduce.
  Status ReduceScatter(std::string_view name, DType dtype, void* data,
                       int64_t count, int64_t row, Reduction how) override;
  Status AllToAll(std::string_view name, const void* mine, int64_t each,
                  void* all) override;
  Status Barrier(std::string_view name) override;
  Status Check() override;
  double seconds() const override;

  // Waits until the others can be told.
  void Leave(const Status& failure) override;

 private:
  MpiGroup(const MpiCalls& calls, const MpiPlace& place);

  // Runs a collective's body where all ranks are at the same, and `prepare` has
  // failed on none. Any error is that of all later calls.
  template <typename Signature, typename Prepare, typename Body>
  Status Collective(Signature signature, Prepare prepare, Body body);
  Status Agree(const std::string& signature) REQUIRES(mutex_);
  Status Difference(const std::string& signature) const;
  Status Reduce(DType dtype, void* data, int64_t count, Reduction how);

  const MpiCalls& calls_;
  const MpiPlace place_;
  mutable Mutex mutex_;
  Status broken_ GUARDED_BY(mutex_);
  double seconds_ GUARDED_BY(mutex_) = 0;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_MPI_MPI_GROUP_H_
