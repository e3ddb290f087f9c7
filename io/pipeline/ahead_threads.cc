#include "io/pipeline/ahead_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "engine/ceil_div.h"

namespace sluice {

void AheadThreads::Run(int number) {
  for (;;) {
    Work work;
    {
      MutexLock lock(mutex_);
      for (;;) {
        if (stop_ || no_more_work_) return;
        if (number < wanted_) work = TakeWork();
        if (work != nullptr) break;
        (number < wanted_ ? changed_ : more_wanted_).Wait(mutex_);
      }
    }
    work();
  }
}

Status AheadThreads::StartThreads() {
  window_begin_ns_ = SteadyNowNs();
  try {
    AddThreads();
  } catch (const std::system_error& error) {
    return ResourceExhausted(fmt::format(
        "cannot start a thread to read examples: {}", error.what()));
  }
  return {};
}

// Fewer threads than are wanted do the same; throws where there is none.
void AheadThreads::AddThreads() {
  int wanted = 0;
  {
    MutexLock lock(mutex_);
    wanted = wanted_;
  }
  try {
    for (int i = static_cast<int>(running_.size()); i < wanted; ++i) {
      running_.emplace_back([this, i] { Run(i); });
    }
  } catch (const std::system_error&) {
    if (running_.empty()) throw;
  }
  if (stage_ != nullptr) {
    stage_->SetThreads(std::min(wanted, static_cast<int>(running_.size())),
                       timed());
  }
}

void AheadThreads::StopThreads() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  more_wanted_.NotifyAll();
  stop_input_->Set(true);
  for (std::thread& thread : running_) thread.join();
  stop_input_->Set(false);
  running_.clear();
  MutexLock lock(mutex_);
  stop_ = no_more_work_ = false;
  window_ = {};
}

void AheadThreads::Adapt(int64_t batch) {
  if (!timed()) return;
  MapWindow window;
  {
    MutexLock lock(mutex_);
    if (window_.elements < window_size_) return;
    window = std::exchange(window_, {});
  }
  window.seconds = SecondsSince(&window_begin_ns_);
  window_size_ = std::min(
      2 * window_size_,
      Times(batch, std::max<int64_t>(4, CeilDiv(kLeastWindow, batch))));
  int wanted = std::clamp(threads_.adapt(window), 1, threads_.most);
  {
    MutexLock lock(mutex_);
    wanted =
        static_cast<int>(std::min(bytes_.Fit(), static_cast<size_t>(wanted)));
    if (wanted == wanted_) return;
    wanted_ = wanted;
  }
  changed_.NotifyAll();
  more_wanted_.NotifyAll();
  AddThreads();
}

}  // namespace sluice
