// The main function of every test program; a run of no test fails. A test case
// that hangs ends it; what one may take is SLUICE_TEST_SECONDS, by default less
// than what ctest is given for a whole file. What each pass of each step leaves
// is verified. With SLUICE_TEST_EXECUTOR=checked in the environment all steps
// that do not ask for an executor run checked (ExecutorMode::kChecked).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "graph/compile/lower.h"
#include "graph/passes/pipeline.h"
#include "tests/support/checked.h"
#include "tests/support/sanitizers.h"
#include "tests/support/watchdog.h"

// Sanitizers end a process that asks for more memory than they could give; the
// tests ask for it to see the error. What may be had is marked byte by byte, a
// second for each 4 GiB: that is where tests/support/apart.h has its limit too.
extern "C" const char* __asan_default_options() {  // NOLINT
  return "allocator_may_return_null=1:max_allocation_size_mb=4096";
}
extern "C" const char* __tsan_default_options() {  // NOLINT
  return "allocator_may_return_null=1";
}

namespace {

// Whether any test was chosen. A filter that matches none would pass.
bool any_test = false;

std::chrono::seconds CaseLimit() {
  const char* const seconds = std::getenv("SLUICE_TEST_SECONDS");
  if (seconds != nullptr) return std::chrono::seconds(std::atoi(seconds));
  return std::chrono::seconds(sluice::testing::kSanitized ? 540 : 300);
}

// Counts test cases, and watches the one that runs.
struct Counter final : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override { any_test = true; }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    any_test = any_test || stats.numTestCasesPassingFilters > 0;
  }
  void test_case_start(const doctest::TestCaseData& test) override {
    watchdog_.emplace(CaseLimit(),
                      fmt::format("{} '{}'", test.m_file.c_str(), test.m_name));
  }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    watchdog_.reset();
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::optional<sluice::testing::Watchdog> watchdog_;
};
REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

int main(int argc, char** argv) {
  sluice::passes::VerifyEachPass();
  if (sluice::testing::StepsAreChecked()) {
    sluice::SetAutoExecutor(sluice::ExecutorMode::kChecked);
  }
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (result == 0 && !any_test && !context.shouldExit()) {
    std::fputs("no test has these names\n", stderr);
    return 1;
  }
  return result;
}
