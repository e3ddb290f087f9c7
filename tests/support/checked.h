// Whether this run of a test program was asked to run its steps checked
// (ExecutorMode::kChecked): its plans do not reuse memory then.
#ifndef SLUICE_TESTS_SUPPORT_CHECKED_H_
#define SLUICE_TESTS_SUPPORT_CHECKED_H_

#include <cstdlib>
#include <string_view>

namespace sluice::testing {

inline bool StepsAreChecked() {
  const char* executor = std::getenv("SLUICE_TEST_EXECUTOR");
  return executor != nullptr && std::string_view(executor) == "checked";
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CHECKED_H_
