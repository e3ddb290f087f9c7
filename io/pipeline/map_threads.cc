#include "io/pipeline/map_threads.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/threads.h"

namespace sluice {
namespace {

// What a change must bring, or may cost, in elements per second.
constexpr double kGain = 1.05;
constexpr double kLoss = 0.97;
// Parts of the time: of waiting that calls for more threads, of reading that
// leaves nothing for them to do.
constexpr double kNotableWait = 0.1;
constexpr double kAllReading = 0.9;
// How much longer elements may take than they did.
constexpr double kReserveForMore = 1.1;
constexpr double kReserveForFewer = 1.25;
// Waiting so much more than when more threads did not help is something else.
constexpr double kOtherWait = 0.2;

}  // namespace

MapThreads MapThreads::Of(int threads, int max_threads) {
  if (threads > 0) return {.begin = threads, .most = threads};
  const int most = max_threads > 0 ? max_threads : AvailableCores();
  const auto chosen = std::make_shared<AdaptiveThreads>(most);
  return {.begin = chosen->threads(),
          .most = most,
          .adapt = [chosen](const MapWindow& w) { return chosen->Next(w); }};
}

int AdaptiveThreads::Next(const MapWindow& window) {
  if (window.elements <= 0 || !(window.seconds > 0)) return threads_;
  const double rate = static_cast<double>(window.elements) / window.seconds;
  const double waited = window.waited / window.seconds;
  if (trial_) Judge(rate, waited);
  more_.windows = std::max(0, more_.windows - 1);
  fewer_.windows = std::max(0, fewer_.windows - 1);
  if (trial_) {  // it failed; what the window says is of other threads
    trial_.reset();
    return threads_;
  }

  if (waited > more_.waited + kOtherWait) more_.windows = 0;
  if (waited >= kNotableWait && more_.windows == 0 && threads_ < most_ &&
      window.reading < kAllReading * window.seconds) {
    Try(std::clamp(Needed(window, kReserveForMore), threads_ + 1, 2 * threads_),
        rate);
    return threads_;
  }
  const int needed = Needed(window, kReserveForFewer);
  fewer_needed_ = needed < threads_ ? fewer_needed_ + 1 : 0;
  if (fewer_needed_ >= 2 && fewer_.windows == 0) {
    Try(std::max(needed, threads_ / 2), rate);
  }
  return threads_;
}

// Leaves the trial where it failed.
void AdaptiveThreads::Judge(double rate, double waited) {
  Hold& hold = trial_->more ? more_ : fewer_;
  if (rate >= trial_->rate * (trial_->more ? kGain : kLoss)) {
    hold = {};
    trial_.reset();
    return;
  }
  threads_ = trial_->before;
  hold = {.windows = hold.next + 1,
          .next = std::min(kMostHold, 2 * hold.next),
          .waited = waited};
}

void AdaptiveThreads::Try(int threads, double rate) {
  trial_ = {.before = threads_, .rate = rate, .more = threads > threads_};
  threads_ = std::min(threads, most_);
  fewer_needed_ = 0;
}

int AdaptiveThreads::Needed(const MapWindow& window, double times) const {
  const double pace = std::max(window.seconds - window.waited, window.reading);
  const double work = times * (window.mapping + window.reading);
  if (!(work < pace * most_)) return most_;
  return std::max(1, static_cast<int>(std::ceil(work / pace)));
}

}  // namespace sluice
