#include "dist/collective/call_queue.h"

#include "engine/caught.h"
#include "engine/threads.h"

namespace sluice::dist {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CallQueue::Turn::Turn(CallQueue& queue)
    : queue_(queue.Within() ? nullptr : &queue), begin_(Clock::now()) {
  if (queue_ != nullptr) queue_->Finish();
}

CallQueue::Turn::~Turn() {
  if (queue_ == nullptr) return;
  const std::chrono::duration<double> taken = Clock::now() - begin_;
  queue_->seconds_ += taken.count();
}

CallQueue::~CallQueue() {
  Finish();
  {
    MutexLock lock(mutex_);
    end_ = true;
    wanted_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CallQueue::CallThread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  called_ = true;
  wanted_.NotifyAll();
}

Status CallQueue::Start(const CollectiveCall& call, bool beside) {
  MutexLock lock(mutex_);
  try {
    if (beside) CallThread();
    entries_.push_back({call});
  } catch (...) {
    return CaughtStatus();
  }
  return {};
}

CallQueue::Entry* CallQueue::Find(const void* data) {
  for (Entry& entry : entries_) {
    if (entry.call.data == data && !entry.waited) return &entry;
  }
  return nullptr;
}

Status CallQueue::Wait(const void* data) {
  const Clock::time_point begin = Clock::now();
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
  const std::chrono::duration<double> taken = Clock::now() - begin;
  seconds_ += taken.count();
  return status;
}

bool CallQueue::IsOver(const void* data, Waker& waker) {
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

void CallQueue::Finish() {
  MutexLock lock(mutex_);
  while (running_ || next_ < entries_.size()) {
    running_ ? over_.Wait(mutex_) : Next();
  }
}

void CallQueue::Forget() {
  Finish();
  MutexLock lock(mutex_);
  entries_.clear();
  next_ = waited_ = 0;
}

bool CallQueue::Within() const {
  MutexLock lock(mutex_);
  return runner_ == std::this_thread::get_id();
}

// Does the next one; the caller's lock is open meanwhile.
void CallQueue::Next() {
  running_ = true;
  runner_ = std::this_thread::get_id();
  const size_t place = next_++;
  const CollectiveCall call = entries_[place].call;
  mutex_.Unlock();
  Status status;
  try {
    status = body_(call);
  } catch (...) {
    status = CaughtStatus();
  }
  mutex_.Lock();
  running_ = false;
  runner_ = {};
  // Nobody forgets it before it was waited for, which is after it is over.
  Entry& entry = entries_[place];
  entry.status = std::move(status);
  entry.over = true;
  if (Waker* const waker = std::exchange(entry.waker, nullptr)) waker->Wake();
  over_.NotifyAll();
}

// With the floating-point rules of the threads that compute, for the same bits.
void CallQueue::Loop() {
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
