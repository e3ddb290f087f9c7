// The main function of every test program. With SLUICE_TEST_EXECUTOR=checked
// in the environment all steps that do not ask for an executor run checked
// (ExecutorMode::kChecked).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "graph/lower.h"
#include "tests/support/checked.h"

int main(int argc, char** argv) {
  if (sluice::testing::StepsAreChecked()) {
    sluice::SetAutoExecutor(sluice::ExecutorMode::kChecked);
  }
  doctest::Context context(argc, argv);
  return context.run();
}
