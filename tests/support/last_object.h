// What programs print with --json. (The JSON library takes 4 s and more to
// compile: tests/support/program.h is without it.)
#ifndef SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_
#define SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace sluice::testing {

// Each line of `out`, which must be JSON.
inline std::vector<nlohmann::ordered_json> Objects(const std::string& out) {
  std::vector<nlohmann::ordered_json> objects;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::ordered_json::parse(line));
  }
  return objects;
}

// The last line of `out`, which must be JSON.
inline nlohmann::ordered_json LastObject(const std::string& out) {
  return nlohmann::ordered_json::parse(LastLine(out));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_LAST_OBJECT_H_
