// What a process says that can be in the next group, for tests of rosters.
#ifndef SLUICE_TESTS_DIST_MEMBERSHIP_MEETING_H_
#define SLUICE_TESTS_DIST_MEMBERSHIP_MEETING_H_

#include <chrono>
#include <cstdint>

#include "dist/membership/roster.h"

namespace sluice::dist::testing {

inline Meeting Of(int64_t done) {
  return {.port = 1000,
          .done = done,
          .patience = std::chrono::milliseconds(1000),
          .silence = std::chrono::milliseconds(300),
          .build = "1/avx2",
          .why = "rank 1 of 3 has ended"};
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_MEMBERSHIP_MEETING_H_
