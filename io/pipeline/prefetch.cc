#include "io/pipeline/prefetch.h"

#include "io/pipeline/example_stream.h"
#include "io/pipeline/stage.h"

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
  stop_input_->Set(true);
  thread_.join();
  stop_input_->Set(false);
}

Status PrefetchStream::StartEpoch(uint64_t epoch) {
  Stop();
  started_ = false;
  MutexLock lock(mutex_);
  ready_.clear();
  bytes_.Clear();
  error_ = {};
  ended_ = stop_ = false;
  return input_->StartEpoch(epoch);
}

bool PrefetchStream::MayRead(size_t* held) {
  return ready_.size() < depth_ && bytes_.Begin(/*must=*/ready_.empty(), held);
}

void PrefetchStream::Run() {
  for (;;) {
    Ready next;
    {
      MutexLock lock(mutex_);
      while (!stop_ && !MayRead(&next.held)) changed_.Wait(mutex_);
      if (stop_) return;
    }
    Result<bool> more = false;
    // Streams return errors, but memory may run out anywhere.
    Status status = CatchErrors([&] {
      more = input_->Next(&next.element);
      if (marks_ && more.ok() && *more) input_->Save(&next.end);
    });
    if (status.ok()) status = more.status();
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    if (!status.ok() || !*more) {
      bytes_.Drop(&next.held);
      error_ = status;
      ended_ = true;
      return;
    }
    bytes_.Made(HeldBytes(next.element), &next.held);
    ready_.push_back(std::move(next));
  }
}

Result<bool> PrefetchStream::Next(Example* element) {
  if (!started_) {
    started_ = true;
    mark_.clear();
    if (marks_) input_->Save(&mark_);
    thread_ = std::thread([this] { Run(); });
  }
  MutexLock lock(mutex_);
  if (!ended_ && ready_.empty()) {
    const Waiting waiting;
    while (!ended_ && ready_.empty()) changed_.Wait(mutex_);
  }
  if (ready_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  *element = std::move(ready_.front().element);
  mark_ = std::move(ready_.front().end);
  bytes_.Drop(&ready_.front().held);
  ready_.pop_front();
  changed_.NotifyAll();
  return true;
}

Result<int64_t> PrefetchStream::Skip(int64_t n) {
  return started_ ? Stream<Example>::Skip(n) : input_->Skip(n);
}

void PrefetchStream::Save(Mark* mark) const {
  if (started_) {
    SLUICE_CHECK(marks_);
    mark->insert(mark->end(), mark_.begin(), mark_.end());
  } else {
    input_->Save(mark);
  }
}

Status PrefetchStream::PassOver(int64_t n) {
  SLUICE_CHECK(!started_);  // the thread has gone further
  return input_->PassOver(n);
}

}  // namespace sluice
