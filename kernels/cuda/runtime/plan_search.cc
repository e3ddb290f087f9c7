#include "kernels/cuda/runtime/plan_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace sluice::cuda {
namespace {

constexpr double kSecondsOfModel = 90;
constexpr double kShare = 1.0 / 30;
constexpr double kBetweenModels = 60;  // seconds

}  // namespace

SearchBudget::SearchBudget(double seconds, Clock clock)
    : seconds_(seconds), clock_(std::move(clock)), left_(seconds) {}

SearchBudget& SearchBudget::Global() {
  // Never destroyed: threads may be in it.
  static SearchBudget* const budget = new SearchBudget(kSecondsOfModel, [] {
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  });
  return *budget;
}

double SearchBudget::Allowance() {
  const double now = Now();
  MutexLock lock(mutex_);
  if (last_end_ && now - *last_end_ >= kBetweenModels) left_ = seconds_;
  return std::max(left_, 0.0) * kShare;
}

void SearchBudget::Spent(double begin) {
  const double now = Now();
  MutexLock lock(mutex_);
  left_ -= now - begin;
  last_end_ = now;
}

double SearchBudget::CostOf(int64_t engine) const {
  MutexLock lock(mutex_);
  const auto known = costs_.find(engine);
  return known == costs_.end() ? 0 : known->second;
}

void SearchBudget::NoteCost(int64_t engine, double seconds) {
  MutexLock lock(mutex_);
  costs_[engine] = seconds;
}

std::vector<size_t> SearchOrder(const std::vector<int64_t>& engines) {
  std::vector<size_t> order, later;
  std::set<int64_t> known;
  for (size_t i = 0; i < engines.size(); ++i) {
    (known.insert(engines[i]).second ? order : later).push_back(i);
  }
  order.insert(order.end(), later.begin(), later.end());
  return order;
}

std::optional<Fastest> FirstThatRuns(size_t suggestions, const Trial& trial) {
  for (size_t i = 0; i < suggestions; ++i) {
    if (trial.make(i) && std::isfinite(trial.time(i))) return Fastest{i, false};
  }
  return std::nullopt;
}

std::optional<Fastest> SearchFastest(const std::vector<int64_t>& engines,
                                     const Trial& trial, SearchBudget& budget) {
  const double begin = budget.Now(), allowance = budget.Allowance();
  std::optional<Fastest> fastest;
  if (allowance <= 0) {
    fastest = FirstThatRuns(engines.size(), trial);
    budget.Spent(begin);
    return fastest;
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double least = kNever;
  int timed = 0;
  bool all = true;
  for (size_t i : SearchOrder(engines)) {
    const double now = budget.Now();
    // One that fails when it is run is none, and then the search goes on.
    if (fastest && (now - begin >= allowance ||
                    now - begin + budget.CostOf(engines[i]) > allowance)) {
      all = false;
      continue;
    }
    const double seconds = trial.make(i) ? trial.time(i) : kNever;
    budget.NoteCost(engines[i], budget.Now() - now);
    if (!std::isfinite(seconds)) continue;
    ++timed;
    if (seconds < least) {
      fastest = Fastest{i, false};
      least = seconds;
    }
  }
  budget.Spent(begin);
  if (fastest) fastest->measured = timed > 1 || all;
  return fastest;
}

}  // namespace sluice::cuda
