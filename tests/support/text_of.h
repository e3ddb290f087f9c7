// What a file holds.
#ifndef SLUICE_TESTS_SUPPORT_TEXT_OF_H_
#define SLUICE_TESTS_SUPPORT_TEXT_OF_H_

#include <fstream>
#include <sstream>
#include <string>

namespace sluice::testing {

inline std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TEXT_OF_H_
