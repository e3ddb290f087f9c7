// What is written to stderr and stdout.
#ifndef SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_
#define SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace sluice::testing {

// By this process, to one of the two, during fn().
template <typename Fn>
std::string WrittenTo(std::FILE* stream, Fn&& fn) {
  std::fflush(stream);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int number = ::fileno(stream);
  const int before = ::dup(number);
  ::dup2(::fileno(file), number);
  const auto restore = [&] {
    std::fflush(stream);
    ::dup2(before, number);
    ::close(before);
  };
  try {
    fn();
  } catch (...) {  // what the tests say from here on is to be seen
    restore();
    std::fclose(file);
    throw;
  }
  restore();
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    text += static_cast<char>(c);
  }
  std::fclose(file);
  return text;
}

template <typename Fn>
std::string StderrOf(Fn&& fn) {
  return WrittenTo(stderr, fn);
}
template <typename Fn>
std::string StdoutOf(Fn&& fn) {
  return WrittenTo(stdout, fn);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STDERR_TEXT_H_
