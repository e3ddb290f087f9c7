// What trainings tell people.
#ifndef SLUICE_TESTS_SUPPORT_RECORDING_REPORTER_H_
#define SLUICE_TESTS_SUPPORT_RECORDING_REPORTER_H_

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "models/train/workers/reporter.h"

namespace sluice::testing {

// Several workers may have one.
class RecordingReporter : public Reporter {
 public:
  void Note(std::string_view line) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Each line ends with a newline.
  std::string text() const {
    std::string text;
    for (const std::string& line : lines()) text += line + '\n';
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RECORDING_REPORTER_H_
