#include "engine/runtime/step_threads.h"

#include <algorithm>

namespace sluice {

StepThreads::~StepThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void StepThreads::Reserve(int threads) {
  MutexLock lock(mutex_);
  while (static_cast<int>(threads_.size()) < threads) {
    threads_.emplace_back([this] { Loop(); });
  }
}

int StepThreads::size() const {
  MutexLock lock(mutex_);
  return static_cast<int>(threads_.size());
}

void StepThreads::Start(Part& part, TimePoint deadline) {
  MutexLock lock(mutex_);
  if (part.threads_ != this) part.threads_ = this;
  part.deadline_ = deadline;
  MakeReady(part);
}

void StepThreads::Part::Wake() {
  threads_->Wake(*this);
}

// One that runs may be about to park: it looks again before. One that is ready
// or has ended needs nothing.
void StepThreads::Wake(Part& part) {
  MutexLock lock(mutex_);
  if (part.state_ == Part::State::kRunning) part.state_ = Part::State::kWoken;
  if (part.state_ != Part::State::kParked) return;
  std::erase(timed_, &part);
  MakeReady(part);
}

void StepThreads::MakeReady(Part& part) {
  part.state_ = Part::State::kReady;
  part.next_ = nullptr;
  (first_ready_ == nullptr ? first_ready_ : last_ready_->next_) = &part;
  last_ready_ = &part;
  changed_.NotifyOne();
}

// Those whose deadline has passed become ready. Returns the next deadline.
StepThreads::TimePoint StepThreads::ResumeLate() {
  TimePoint next = TimePoint::max();
  if (timed_.empty()) return next;
  const TimePoint now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < timed_.size();) {
    Part& part = *timed_[i];
    if (part.deadline_ <= now) {
      timed_[i] = timed_.back();
      timed_.pop_back();
      MakeReady(part);
    } else {
      next = std::min(next, part.deadline_);
      ++i;
    }
  }
  return next;
}

// Null when the threads are to stop.
StepThreads::Part* StepThreads::Next() {
  while (!stop_) {
    const TimePoint deadline = ResumeLate();
    if (first_ready_ != nullptr) {
      Part* const part = first_ready_;
      first_ready_ = part->next_;
      return part;
    }
    if (deadline == TimePoint::max()) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitUntil(mutex_, deadline);
    }
  }
  return nullptr;
}

void StepThreads::RunPart(Part& part) {
  using State = Part::State;
  bool ended = false;
  do {
    part.state_ = State::kRunning;
    mutex_.Unlock();
    ended = part.Resume();
    mutex_.Lock();
  } while (!ended && part.state_ == State::kWoken);
  part.state_ = ended ? State::kOut : State::kParked;
  if (ended) {
    mutex_.Unlock();
    part.Ended();
    mutex_.Lock();
  } else if (part.deadline_ != TimePoint::max()) {
    timed_.push_back(&part);
    changed_.NotifyOne();  // who sleeps may have a later one in mind
  }
}

void StepThreads::Loop() {
  MutexLock lock(mutex_);
  while (Part* const part = Next()) RunPart(*part);
}

}  // namespace sluice
