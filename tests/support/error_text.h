// What an error says.
#ifndef SLUICE_TESTS_SUPPORT_ERROR_TEXT_H_
#define SLUICE_TESTS_SUPPORT_ERROR_TEXT_H_

#include <doctest/doctest.h>

#include <string>

#include "engine/status.h"

namespace sluice::testing {

template <typename Fn>
std::string ErrorOf(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

// Whether `part` is in `text`; prints both when it is not.
[[nodiscard]] inline bool Contains(const std::string& text,
                                   const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'" << part << "' is not in: " << text);
  return found;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_ERROR_TEXT_H_
