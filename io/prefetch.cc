#include "io/prefetch.h"

#include "io/example_stream.h"

namespace sluice {

PrefetchStream::~PrefetchStream() {
  Stop();
}

void PrefetchStream::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status PrefetchStream::StartEpoch(uint64_t epoch) {
  Stop();
  thread_ = {};
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
    std::unique_lock lock(mutex_);
    if (!status.ok() || !*more) {
      error_ = status;
      ended_ = true;
      changed_.notify_all();
      return;
    }
    ready_.push_back(std::move(element));
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
    if (stop_) return;
  }
}

Result<bool> PrefetchStream::Next(Example* element) {
  if (!thread_.joinable() && !ended_) {
    thread_ = std::thread([this] { Run(); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !ready_.empty(); });
  if (ready_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  *element = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return true;
}

Result<int64_t> PrefetchStream::Skip(int64_t n) {
  if (!thread_.joinable() && !ended_) return input_->Skip(n);
  return Stream<Example>::Skip(n);
}

}  // namespace sluice
