#include "dist/collective/reduce_queue.h"

#include "engine/caught.h"
#include "engine/threads.h"

namespace sluice::dist {

ReduceQueue::~ReduceQueue() {
  Finish();
  {
    MutexLock lock(mutex_);
    end_ = true;
    wanted_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ReduceQueue::CallThread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  called_ = true;
  wanted_.NotifyAll();
}

Status ReduceQueue::Start(const Item& item, bool beside) {
  MutexLock lock(mutex_);
  try {
    if (beside) CallThread();
    entries_.push_back({item});
  } catch (...) {
    return CaughtStatus();
  }
  return {};
}

ReduceQueue::Entry* ReduceQueue::Find(const void* data) {
  for (size_t i = entries_.size(); i-- > 0;) {
    Entry& entry = entries_[i];
    if (entry.item.data == data && !entry.waited) return &entry;
  }
  return nullptr;
}

Status ReduceQueue::Wait(const void* data) {
  MutexLock lock(mutex_);
  // Others may be started meanwhile, so it may be elsewhere every time.
  Entry* entry = nullptr;
  while ((entry = Find(data)) != nullptr && !entry->over) {
    running_ ? over_.Wait(mutex_) : Next();
  }
  if (entry == nullptr) return Internal("nothing was started there");
  entry->waited = true;
  Status status = std::move(entry->status);
  if (++waited_ == entries_.size()) {
    entries_.clear();
    next_ = waited_ = 0;
  }
  return status;
}

bool ReduceQueue::Ready(const void* data, Waker& waker) {
  MutexLock lock(mutex_);
  Entry* const entry = Find(data);
  if (entry == nullptr || entry->over) return true;
  try {
    CallThread();
  } catch (...) {
    return true;
  }
  entry->waker = &waker;
  return false;
}

void ReduceQueue::Finish() {
  MutexLock lock(mutex_);
  while (running_ || next_ < entries_.size()) {
    running_ ? over_.Wait(mutex_) : Next();
  }
}

void ReduceQueue::Forget() {
  Finish();
  MutexLock lock(mutex_);
  entries_.clear();
  next_ = waited_ = 0;
}

// Does the next one; the caller's lock is open meanwhile.
void ReduceQueue::Next() {
  running_ = true;
  const size_t place = next_++;
  const Item item = entries_[place].item;
  mutex_.Unlock();
  Status status;
  try {
    status = reduce_(item);
  } catch (...) {
    status = CaughtStatus();
  }
  mutex_.Lock();
  running_ = false;
  // Nobody forgets it before it was waited for, which is after it is over.
  Entry& entry = entries_[place];
  entry.status = std::move(status);
  entry.over = true;
  if (Waker* const waker = std::exchange(entry.waker, nullptr)) waker->Wake();
  over_.NotifyAll();
}

// With the floating-point rules of the threads that compute, for the same bits.
void ReduceQueue::Loop() {
  const ScopedFlushDenormals flush;
  MutexLock lock(mutex_);
  while (!end_) {
    if (called_ && !running_ && next_ < entries_.size()) {
      Next();
    } else if (running_) {
      over_.Wait(mutex_);
    } else {
      called_ = false;
      wanted_.Wait(mutex_);
    }
  }
}

}  // namespace sluice::dist
