// Fetches what a reader will want next before it asks.
#ifndef SLUICE_IO_REMOTE_OBJECTS_READAHEAD_H_
#define SLUICE_IO_REMOTE_OBJECTS_READAHEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/remote/objects/fetch_threads.h"

namespace sluice::remote {

// How objects are read.
struct ReadSizes {
  size_t head = size_t{64} << 10;  // bytes that opening reads and keeps
  size_t block = size_t{1} << 20;  // bytes read ahead at a time
  size_t blocks_ahead = 8;         // of one run
  int threads_ahead = 16;          // that fetch them
  size_t all_blocks = 64;          // of all files of the process
  size_t part = size_t{4} << 20;   // larger reads are split into such parts,
  int parallel_parts = 8;          // so many at a time
};

// Looks for runs in the reads of one file: reads each of which begins in or a
// little behind the one before, as of a reader that goes through it, perhaps
// leaving some out. From a run's second read on its next blocks are fetched,
// from the third where it leaves some out, since reads at random come close to
// one another, too; twice as many with every read up to blocks_ahead. Four runs
// at a time, those read last. Thread-safe.
class Readahead {
 public:
  // Fetches exactly n bytes of the file. Called on other threads, until a while
  // after the Readahead is gone.
  using Fetch = std::function<Result<std::string>(uint64_t offset, uint64_t n)>;

  // Nothing before byte `begin` is fetched, since the caller has it, and
  // nothing behind `size`.
  Readahead(uint64_t begin, uint64_t size, const ReadSizes& sizes,
            FetchThreads& threads, Fetch fetch)
      : begin_(begin),
        size_(size),
        sizes_(sizes),
        threads_(threads),
        fetch_(std::move(fetch)) {}

  // Notes that n bytes at `offset` are read into `out`, where the caller put
  // the first `have` of them, and adds those that were read ahead, waiting for
  // them, up to the first gap. Returns how many there are now: the caller is to
  // fetch the rest. Errors of the fetch, once: the next read tries again.
  Result<size_t> Read(uint64_t offset, size_t have, char* out, size_t n);

 private:
  class Block;
  using Blocks = std::vector<std::shared_ptr<Block>>;
  struct Run {
    uint64_t at = 0;     // where the last read began
    uint64_t reach = 0;  // the end of what was read
    size_t window = 0;   // blocks to have ahead; 0: it may be none
    bool leapt = false;  // a read left something out
    Blocks blocks;       // one behind another
  };

  // The blocks that have the bytes of this read from `have` on, in order.
  Blocks Follow(uint64_t offset, size_t have, size_t n) EXCLUDES(mutex_);
  void Extend(Run& run, uint64_t offset) REQUIRES(mutex_);
  void Forget(const Block* block) EXCLUDES(mutex_);

  const uint64_t begin_, size_;
  const ReadSizes sizes_;
  FetchThreads& threads_;
  const Fetch fetch_;
  Mutex mutex_;
  std::list<Run> runs_ GUARDED_BY(mutex_);  // the one read last comes first
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_OBJECTS_READAHEAD_H_
