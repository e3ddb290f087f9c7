// What a program's evaluation found.
#ifndef SLUICE_TESTS_SUPPORT_EVALUATION_FIGURES_H_
#define SLUICE_TESTS_SUPPORT_EVALUATION_FIGURES_H_

#include <doctest/doctest.h>

#include <string>

#include "tests/support/program.h"

namespace sluice::testing {

// Of "eval: test loss 0.01, accuracy 97 % (16 examples) after 2 steps; ..." all
// from the ":" to the ")".
inline std::string EvaluationFigures(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const size_t begin = outcome.out.find(": ");
  const size_t end = outcome.out.find(')');
  const bool found = begin < end && end != std::string::npos;
  REQUIRE_MESSAGE(found, outcome.out);
  return outcome.out.substr(begin, end + 1 - begin);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_EVALUATION_FIGURES_H_
