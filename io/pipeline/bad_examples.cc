#include "io/pipeline/bad_examples.h"

#include <fmt/format.h>

namespace sluice {

bool BadExamples::IsOne(const Status& error) {
  switch (error.code()) {
    case Code::kDataLoss:
    case Code::kNotFound:
    case Code::kFailedPrecondition:
    case Code::kUnimplemented:
      return true;
    default:
      return false;
  }
}

Status BadExamples::Add(int64_t place, const Status& error) {
  if (limit_ == 0) return error;
  MutexLock lock(mutex_);
  const auto count = static_cast<int64_t>(known_.size());
  const bool is_new = !known_.contains(error.message());
  if (is_new && count == limit_) {
    return {error.code(),
            fmt::format("{}; {} bad ones were passed over before it, as many "
                        "as may be",
                        error.message(), count)};
  }
  if (is_new) {
    known_.insert(error.message());
    messages_.push_back(error.message());
  }
  by_place_[place] = error.message();
  return {};
}

int64_t BadExamples::count() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(known_.size());
}

std::vector<std::string> BadExamples::messages() const {
  MutexLock lock(mutex_);
  return messages_;
}

std::string BadExamples::At(int64_t place) const {
  MutexLock lock(mutex_);
  const auto found = by_place_.find(place);
  return found == by_place_.end() ? "" : found->second;
}

}  // namespace sluice
