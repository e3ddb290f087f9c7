// Collects the faults of pictures or records: of many the first few are named.
#ifndef SLUICE_APPS_SLUICE_DATA_FAULTS_H_
#define SLUICE_APPS_SLUICE_DATA_FAULTS_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "engine/thread_annotations.h"

namespace sluice::tool {

// The first twenty faults, in the order of their places, and how many there
// are. Thread-safe.
class Faults {
 public:
  void Add(int64_t place, std::string message);
  int64_t count() const;

  // A line for each, and one that counts the others; those that cannot be
  // written are dropped.
  void Print(std::FILE* file) const;
  // Prints an object {"bad": MESSAGE} for each on stdout.
  void PrintAsJson() const;

 private:
  static constexpr size_t kMost = 20;

  mutable Mutex mutex_;
  std::multimap<int64_t, std::string> first_ GUARDED_BY(mutex_);
  int64_t count_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_FAULTS_H_
