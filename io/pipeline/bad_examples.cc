#include "io/pipeline/bad_examples.h"

#include <fmt/format.h>

#include "engine/text/json.h"

namespace sluice {
namespace {

// By which a message is known whose bytes may have been replaced.
std::string LenientKey(const std::string& message) {
  return Json(message).LenientText();
}

}  // namespace

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
  const std::string& message = error.message();
  MutexLock lock(mutex_);
  if (!known_.contains(message)) {
    const auto before = from_before_.find(LenientKey(message));
    const auto count = static_cast<int64_t>(messages_.size());
    if (before != from_before_.end()) {
      from_before_.erase(before);
    } else if (count < limit_) {
      messages_.push_back(message);
    } else {
      return {error.code(),
              fmt::format("{}; {} bad ones were passed over before it, as many "
                          "as may be",
                          message, count)};
    }
    known_.insert(message);
  }
  by_place_[place] = message;
  return {};
}

int64_t BadExamples::count() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(messages_.size());
}

std::vector<std::string> BadExamples::messages() const {
  MutexLock lock(mutex_);
  return messages_;
}

void BadExamples::Know(const std::vector<std::string>& messages) {
  MutexLock lock(mutex_);
  std::multiset<std::string> there;
  for (const std::string& message : messages_) {
    there.insert(LenientKey(message));
  }
  for (const std::string& message : messages) {
    const std::string key = LenientKey(message);
    if (const auto same = there.find(key); same != there.end()) {
      there.erase(same);
    } else {
      from_before_.insert(key);
      messages_.push_back(message);
    }
  }
}

std::string BadExamples::At(int64_t place) const {
  MutexLock lock(mutex_);
  const auto found = by_place_.find(place);
  return found == by_place_.end() ? "" : found->second;
}

}  // namespace sluice
