#include "io/remote/objects/readahead.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

namespace sluice::remote {
namespace {

std::atomic<size_t> all_blocks = 0;  // of the process

}  // namespace

class Readahead::Block {
 public:
  Block(uint64_t begin, uint64_t end) : begin_(begin), end_(end) {
    ++all_blocks;
  }
  ~Block() { --all_blocks; }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }

  void Fill(const Fetch& fetch) {
    Result<std::string> bytes = Unavailable("");
    try {
      bytes = fetch(begin_, end_ - begin_);
    } catch (const std::exception& error) {
      bytes = ResourceExhausted(error.what());
    }
    MutexLock lock(mutex_);
    bytes_ = std::move(bytes);
    done_ = true;
    filled_.NotifyAll();
  }

  // Waits; copies the bytes from `offset` on that fit.
  Result<size_t> Copy(uint64_t offset, char* out, size_t n) {
    MutexLock lock(mutex_);
    while (!done_) filled_.Wait(mutex_);
    if (!bytes_.ok()) return bytes_.status();
    const size_t count = std::min<uint64_t>(n, end_ - offset);
    std::memcpy(out, bytes_->data() + (offset - begin_), count);
    return count;
  }

 private:
  const uint64_t begin_, end_;
  Mutex mutex_;
  CondVar filled_;
  bool done_ GUARDED_BY(mutex_) = false;
  Result<std::string> bytes_ GUARDED_BY(mutex_) = std::string();
};

Result<size_t> Readahead::Read(uint64_t offset, size_t have, char* out,
                               size_t n) {
  for (const auto& block : Follow(offset, have, n)) {
    const auto copied = block->Copy(offset + have, out + have, n - have);
    if (!copied.ok()) {
      Forget(block.get());
      return copied.status();
    }
    have += *copied;
  }
  return have;
}

Readahead::Blocks Readahead::Follow(uint64_t offset, size_t have, size_t n) {
  constexpr size_t kMostRuns = 4;
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(runs_.begin(), runs_.end(), [&](const Run& run) {
        return run.at <= offset && offset <= run.reach + sizes_.block;
      });
  if (found == runs_.end()) {
    runs_.push_front({.at = offset, .reach = offset + n});
    if (runs_.size() > kMostRuns) runs_.pop_back();
    return {};
  }
  runs_.splice(runs_.begin(), runs_, found);
  Run& run = runs_.front();
  const bool leaps = offset > run.reach;
  run.at = offset;
  run.reach = std::max(run.reach, offset + n);
  if (leaps && !run.leapt && run.window == 0) {
    run.leapt = true;
    return {};
  }
  run.window = std::clamp<size_t>(2 * run.window, 1, sizes_.blocks_ahead);
  std::erase_if(run.blocks, [&](auto& b) { return b->end() <= offset; });
  Extend(run, offset);

  Blocks blocks;
  uint64_t covered = offset + have;
  for (const auto& block : run.blocks) {
    if (block->end() <= covered) continue;
    if (block->begin() > covered || covered >= offset + n) break;
    blocks.push_back(block);
    covered = block->end();
  }
  if (run.reach >= size_) runs_.pop_front();  // to the end: nothing follows
  return blocks;
}

void Readahead::Extend(Run& run, uint64_t offset) {
  uint64_t next =
      run.blocks.empty() ? std::max(offset, begin_) : run.blocks.back()->end();
  while (run.blocks.size() < run.window && next < size_ &&
         all_blocks < sizes_.all_blocks) {
    const uint64_t end = std::min<uint64_t>(next + sizes_.block, size_);
    auto block = std::make_shared<Block>(next, end);
    // Who closes the file wants it no more.
    threads_.Start([wanted = std::weak_ptr(block), fetch = fetch_] {
      if (const auto still = wanted.lock()) still->Fill(fetch);
    });
    run.blocks.push_back(std::move(block));
    next = end;
  }
}

void Readahead::Forget(const Block* block) {
  MutexLock lock(mutex_);
  for (Run& run : runs_) {
    const bool has = std::any_of(run.blocks.begin(), run.blocks.end(),
                                 [&](auto& b) { return b.get() == block; });
    if (has) run.blocks.clear();
  }
}

}  // namespace sluice::remote
