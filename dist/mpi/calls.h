// The calls of libsluice_mpi.so: MPI's without MPI's types, which differ from
// one MPI to another. It is loaded where MPI is asked for, so that nothing else
// needs it. Internal to dist.
#ifndef SLUICE_DIST_MPI_CALLS_H_
#define SLUICE_DIST_MPI_CALLS_H_

#include <cstdint>

namespace sluice::dist {

enum class MpiElement : int {
  kFloat32,
  kFloat64,
  kInt32,
  kInt64,
  // Types that MPI lacks: two bytes that MpiAdd adds.
  kFloat16,
  kBFloat16,
};

// sum[i] += addend[i].
using MpiAdd = void (*)(MpiElement element, void* sum, const void* addend,
                        int64_t count);

struct MpiPlace {
  int communicator = 0;                // a number for the calls below
  int rank = 0, size = 1;              // of its ranks
  int local_rank = 0, local_size = 1;  // of those of them that share memory
};

// All return null, or what MPI says is wrong, which holds until the thread's
// next call. From any thread, one at a time of each communicator: who waits in
// one keeps nobody from another, in whatever order ranks come to these. MPI
// itself is called by one thread at a time.
struct MpiCalls {
  int version = 0;  // kMpiVersion, before anything else is looked at
  // Begins MPI, once in a process; `place` is this process's in MPI_COMM_WORLD.
  const char* (*begin)(MpiAdd add, MpiPlace* place) = nullptr;
  // Called by all ranks of a communicator, once all are known to be here: ranks
  // of one colour get a communicator of their own, by their keys and then
  // ranks. A colour below 0: none, and its size is 0. One call at a time in a
  // process.
  const char* (*split)(int communicator, int color, int key,
                       MpiPlace* part) = nullptr;
  // Sums what all ranks have, in place.
  const char* (*sum)(int communicator, MpiElement element, void* data,
                     int64_t count) = nullptr;
  const char* (*largest)(int communicator, uint64_t* values,
                         int count) = nullptr;
  const char* (*broadcast)(int communicator, void* data, int64_t bytes,
                           int root) = nullptr;
  // `mine` may be all + rank * each.
  const char* (*all_gather)(int communicator, const void* mine, int64_t each,
                            void* all) = nullptr;
  // `each` bytes for every rank become those of every rank for this one; the
  // two do not overlap.
  const char* (*all_to_all)(int communicator, const void* mine, int64_t each,
                            void* all) = nullptr;
  const char* (*end)() = nullptr;  // waits for all ranks
};
inline constexpr int kMpiVersion = 2;

// The function that the module exports under this name.
inline constexpr const char* kMpiEntry = "sluice_mpi_calls";
using MpiEntry = const MpiCalls* (*)();

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MPI_CALLS_H_
