// The copies that tensors of an accelerator go through on their way from and to
// other tasks; for dist/rendezvous/linked_rendezvous.cc and linked_exchange.cc
// alone.
#ifndef SLUICE_DIST_RENDEZVOUS_DEVICE_TRANSFERS_H_
#define SLUICE_DIST_RENDEZVOUS_DEVICE_TRANSFERS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "engine/accelerator.h"
#include "engine/runtime/exchange_buffers.h"
#include "engine/runtime/rendezvous.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// The transfers of one accelerator: blocks of pinned memory, which are used
// again, and a thread that waits for the copies from and to them, in the order
// of the calls: for the device alone, whose queues never wait for another task.
// The device must live as long as this; blocks may live longer. The caller must
// hold the accelerator's Turn, on a thread that Uses it.
class DeviceTransfers {
 public:
  struct Block {
    TransferBlock memory;
    TransferMark produced, copied;
  };
  using BlockPtr = std::shared_ptr<Block>;
  using Then = std::function<void(const Status&)>;

  DeviceTransfers();
  // Returns when every `then` was called.
  ~DeviceTransfers();
  DeviceTransfers(const DeviceTransfers&) = delete;
  DeviceTransfers& operator=(const DeviceTransfers&) = delete;

  // Returns a block of at least so many bytes that nobody else uses before it
  // is let go. Not while a copy from or to it is under way.
  Result<BlockPtr> Take(Accelerator& accelerator, size_t bytes);
  // CopyOut copies from the edge's sender to the block, beside what its compute
  // queue does from now on; CopyIn from the block to its receiver, by the
  // compute queue. When the copy is done, or fails, the thread of this calls
  // `then`, without locks; the block is kept until then.
  Status CopyOut(const Edge& edge, const DeviceView& from,
                 const BlockPtr& block, Then then);
  Status CopyIn(const Edge& edge, const DeviceView& into, const BlockPtr& block,
                Then then);

 private:
  class Spare;
  struct Copy {
    BlockPtr block;
    Then then;
  };

  void Await(const BlockPtr& block, Then then) EXCLUDES(mutex_);
  void Watch() EXCLUDES(mutex_);

  const std::shared_ptr<Spare> spare_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Copy> copies_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread watcher_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_RENDEZVOUS_DEVICE_TRANSFERS_H_
