// Real data, which the tree does not hold.
#ifndef SLUICE_TESTS_SUPPORT_REAL_DATA_H_
#define SLUICE_TESTS_SUPPORT_REAL_DATA_H_

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/places.h"

namespace sluice::testing {

// The folder or file of that name in SLUICE_TEST_DATA, or in shared/data beside
// the tree; nullopt, saying so, where there is none.
inline std::optional<std::string> RealData(const std::string& name) {
  const char* root = std::getenv("SLUICE_TEST_DATA");
  const std::filesystem::path path =
      std::filesystem::path(
          root != nullptr ? root : SLUICE_SOURCE_DIR "/../shared/data") /
      name;
  if (std::filesystem::exists(path)) return path.string();
  MESSAGE("skipped: no " << path.string() << "; set SLUICE_TEST_DATA");
  return std::nullopt;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_REAL_DATA_H_
