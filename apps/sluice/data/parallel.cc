#include "apps/sluice/data/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "apps/say_line.h"
#include "engine/caught.h"

namespace sluice::tool {

Status ForEach(int64_t n, int threads,
               const std::function<Status(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> failed = false;
  Mutex mutex;
  int64_t lowest = n;  // that failed
  Status error;
  const auto run = [&] {
    while (!failed) {
      const int64_t i = next++;
      if (i >= n) return;
      Status status;
      try {
        status = work(i);
      } catch (...) {
        status = CaughtStatus();
      }
      if (status.ok()) continue;
      failed = true;
      MutexLock lock(mutex);
      if (i > lowest) continue;
      lowest = i;
      error = std::move(status);
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, n); ++t)
      others.emplace_back(run);
  } catch (const std::exception&) {
    // No more are to be had: those that run, and this one, do it all.
  }
  run();
  for (std::thread& thread : others) thread.join();
  return error;
}

Progress::Progress(int64_t total, std::string what)
    : total_(total), what_(std::move(what)) {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::exception&) {
    // The work matters more than what is said of it.
  }
}

Progress::~Progress() {
  {
    MutexLock lock(mutex_);
    end_ = true;
  }
  ended_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Progress::Run() {
  constexpr std::chrono::seconds kPeriod(10);
  auto next = std::chrono::steady_clock::now() + kPeriod;
  MutexLock lock(mutex_);
  while (!end_) {
    if (ended_.WaitUntil(mutex_, next)) continue;
    SayLine(
        fmt::format("sluice data: {} of {} {}", done_.load(), total_, what_));
    next += kPeriod;
  }
}

}  // namespace sluice::tool
