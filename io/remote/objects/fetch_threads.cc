#include "io/remote/objects/fetch_threads.h"

#include <utility>

namespace sluice::remote {

FetchThreads::~FetchThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    tasks_.clear();
    threads = std::move(threads_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void FetchThreads::Start(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  const bool more = tasks_.size() > static_cast<size_t>(idle_) &&
                    threads_.size() < static_cast<size_t>(most_);
  if (more) threads_.emplace_back([this] { Work(); });
  changed_.NotifyOne();
}

void FetchThreads::Work() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (tasks_.empty() && !stop_) changed_.Wait(mutex_);
      --idle_;
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace sluice::remote
