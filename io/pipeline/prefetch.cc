#include "io/pipeline/prefetch.h"

#include "io/pipeline/example_stream.h"

namespace sluice {

PrefetchStream::~PrefetchStream() {
  Stop();
}

void PrefetchStream::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

Status PrefetchStream::StartEpoch(uint64_t epoch) {
  Stop();
  started_ = false;
  MutexLock lock(mutex_);
  ready_.clear();
  error_ = {};
  ended_ = stop_ = false;
  return input_->StartEpoch(epoch);
}

void PrefetchStream::Run() {
  for (;;) {
    Example element;
    Result<bool> more = false;
    // Streams return errors, but memory may run out anywhere.
    Status status = CatchErrors([&] { more = input_->Next(&element); });
    if (status.ok()) status = more.status();
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    if (!status.ok() || !*more) {
      error_ = status;
      ended_ = true;
      return;
    }
    ready_.push_back(std::move(element));
    while (!stop_ && ready_.size() >= depth_) changed_.Wait(mutex_);
    if (stop_) return;
  }
}

Result<bool> PrefetchStream::Next(Example* element) {
  if (!started_) {
    started_ = true;
    thread_ = std::thread([this] { Run(); });
  }
  MutexLock lock(mutex_);
  while (!ended_ && ready_.empty()) changed_.Wait(mutex_);
  if (ready_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  *element = std::move(ready_.front());
  ready_.pop_front();
  changed_.NotifyAll();
  return true;
}

Result<int64_t> PrefetchStream::Skip(int64_t n) {
  return started_ ? Stream<Example>::Skip(n) : input_->Skip(n);
}

Status PrefetchStream::PassOver(int64_t n) {
  SLUICE_CHECK(!started_);  // the thread has gone further
  return input_->PassOver(n);
}

}  // namespace sluice
