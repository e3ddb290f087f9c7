#include "dist/rendezvous/device_transfers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::dist {
namespace {

// What a block may be larger than what it is taken for, beside as much again.
constexpr size_t kMostMore = 4096;

}  // namespace

// Blocks that nobody uses, no more bytes of them than were in use at once. Kept
// by the blocks in use, too.
class DeviceTransfers::Spare {
 public:
  // One of that size that was let go last; null where there is none.
  std::unique_ptr<Block> Find(size_t bytes) {
    MutexLock lock(mutex_);
    for (auto place = blocks_.rbegin(); place != blocks_.rend(); ++place) {
      const size_t has = (*place)->memory.bytes();
      if (has < bytes || has / 2 > bytes + kMostMore) continue;
      std::unique_ptr<Block> found = std::move(*place);
      blocks_.erase(std::next(place).base());
      bytes_ -= has;
      return found;
    }
    return nullptr;
  }
  void Used(const Block& block) {
    MutexLock lock(mutex_);
    used_ += block.memory.bytes();
    most_ = std::max(most_, used_);
  }
  void Return(std::unique_ptr<Block> block) {
    std::vector<std::unique_ptr<Block>> dropped;  // without the lock
    MutexLock lock(mutex_);
    used_ -= block->memory.bytes();
    bytes_ += block->memory.bytes();
    blocks_.push_back(std::move(block));
    size_t drop = 0;  // the longest unused
    while (bytes_ > most_) bytes_ -= blocks_[drop++]->memory.bytes();
    const auto end = blocks_.begin() + static_cast<std::ptrdiff_t>(drop);
    dropped.assign(std::make_move_iterator(blocks_.begin()),
                   std::make_move_iterator(end));
    blocks_.erase(blocks_.begin(), end);
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;  // of these
  size_t used_ GUARDED_BY(mutex_) = 0, most_ GUARDED_BY(mutex_) = 0;
};

DeviceTransfers::DeviceTransfers()
    : spare_(std::make_shared<Spare>()), watcher_([this] { Watch(); }) {}

DeviceTransfers::~DeviceTransfers() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  watcher_.join();
}

Result<DeviceTransfers::BlockPtr> DeviceTransfers::Take(
    Accelerator& accelerator, size_t bytes) {
  std::unique_ptr<Block> block = spare_->Find(bytes);
  if (block == nullptr) {
    block = std::make_unique<Block>();
    SLUICE_RETURN_IF_ERROR(block->memory.Reserve(bytes, &accelerator));
  }
  spare_->Used(*block);
  return BlockPtr(block.release(), [spare = spare_](Block* let_go) {
    spare->Return(std::unique_ptr<Block>(let_go));
  });
}

Status DeviceTransfers::CopyOut(const Edge& edge, const DeviceView& from,
                                const BlockPtr& block, Then then) {
  SLUICE_RETURN_IF_ERROR(
      CopyOutBeside(*from.accelerator, edge.sender, from.data, edge.bytes,
                    block->memory.data(), block->produced, block->copied));
  Await(block, std::move(then));
  return {};
}

Status DeviceTransfers::CopyIn(const Edge& edge, const DeviceView& into,
                               const BlockPtr& block, Then then) {
  constexpr auto kCompute = Accelerator::kCompute;
  if (edge.bytes > 0) {
    SLUICE_RETURN_IF_ERROR(into.accelerator->CopyIn(
        kCompute, into.data, block->memory.data(), edge.bytes));
  }
  SLUICE_RETURN_IF_ERROR(
      block->copied.Record(*into.accelerator, edge.receiver, kCompute));
  Await(block, std::move(then));
  return {};
}

void DeviceTransfers::Await(const BlockPtr& block, Then then) {
  MutexLock lock(mutex_);
  copies_.push_back({block, std::move(then)});
  changed_.NotifyAll();
}

void DeviceTransfers::Watch() {
  while (true) {
    Copy next;
    {
      MutexLock lock(mutex_);
      while (copies_.empty() && !stop_) changed_.Wait(mutex_);
      if (copies_.empty()) return;
      next = std::move(copies_.front());
      copies_.pop_front();
    }
    next.then(next.block->copied.event()->Wait());
  }
}

}  // namespace sluice::dist
