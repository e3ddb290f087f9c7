// Lines for people where stderr is no terminal.
#include "models/cli/console.h"

#include <doctest/doctest.h>

#include "tests/support/stderr_text.h"

namespace sluice {
namespace {

TEST_CASE("an evaluation is shown as it goes on, but not its end") {
  const auto shown = [](console::Reporter::Clock::duration interval) {
    return testing::StderrOf([&] {
      console::Reporter reporter(interval);
      for (int i = 0; i < 2; ++i) {
        reporter.Evaluating(1200, 3000);
        reporter.Evaluating(2400, 3000);
        reporter.Evaluating(3000, 3000);
      }
      reporter.Evaluating(50, 50);
    });
  };
  if (console::IsTerminal()) return;
  const std::string once =
      "evaluating: 1,200 of 3,000 examples\n"
      "evaluating: 2,400 of 3,000 examples\n";
  CHECK(shown(std::chrono::seconds(0)) == once + once);
  CHECK(shown(std::chrono::hours(1)).empty());
}

}  // namespace
}  // namespace sluice
