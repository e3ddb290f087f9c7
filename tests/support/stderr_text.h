// What is written to stderr.
#ifndef SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_
#define SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace sluice::testing {

// By this process, during fn().
template <typename Fn>
std::string StderrOf(Fn&& fn) {
  std::fflush(stderr);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  fn();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    text += static_cast<char>(c);
  }
  std::fclose(file);
  return text;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_
