// What programs print with --json. (The JSON library takes 4 s and more to
// compile: tests/support/program.h is without it.)
#ifndef SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_
#define SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"

namespace sluice::testing {

// The last line of `out`, which must be JSON.
inline nlohmann::ordered_json LastObject(const std::string& out) {
  return nlohmann::ordered_json::parse(LastLine(out));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_
