// Tests of what not every machine gives.
#ifndef SLUICE_TESTS_SUPPORT_REQUIRED_H_
#define SLUICE_TESTS_SUPPORT_REQUIRED_H_

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace sluice::testing {

// Says that the case is skipped for want of hosts: network name spaces, or an
// ssh server. A failure, which ends the case, where SLUICE_TEST_REQUIRE_HOSTS=1
// says that they are to be had.
inline void SkipForHosts(const std::string& why) {
  const char* const required = std::getenv("SLUICE_TEST_REQUIRE_HOSTS");
  if (required != nullptr && std::string_view(required) == "1") {
    FAIL("SLUICE_TEST_REQUIRE_HOSTS=1, and " << why);
  }
  MESSAGE("skipped: " << why);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_REQUIRED_H_
