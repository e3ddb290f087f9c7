#include "apps/sluice/data/faults.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <utility>

#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"

namespace sluice::tool {

void Faults::Add(int64_t place, std::string message) {
  MutexLock lock(mutex_);
  ++count_;
  first_.emplace(place, std::move(message));
  if (first_.size() > kMost) first_.erase(std::prev(first_.end()));
}

int64_t Faults::count() const {
  MutexLock lock(mutex_);
  return count_;
}

void Faults::Print(std::FILE* file) const {
  MutexLock lock(mutex_);
  for (const auto& [place, message] : first_) {
    std::fputs((Printable(message) + "\n").c_str(), file);
  }
  const int64_t more = count_ - static_cast<int64_t>(first_.size());
  if (more > 0) std::fputs(fmt::format("and {} more\n", more).c_str(), file);
}

void Faults::PrintAsJson() const {
  MutexLock lock(mutex_);
  for (const auto& [place, message] : first_) PrintJson({{"bad", message}});
}

}  // namespace sluice::tool
