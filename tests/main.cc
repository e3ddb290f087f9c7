// The main function of every test program. With SLUICE_TEST_EXECUTOR=checked
// in the environment all steps that do not ask for an executor run checked
// (ExecutorMode::kChecked).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "graph/lower.h"

int main(int argc, char** argv) {
  if (const char* executor = std::getenv("SLUICE_TEST_EXECUTOR")) {
    if (std::string_view(executor) != "checked") {
      std::cerr << "SLUICE_TEST_EXECUTOR is '" << executor
                << "', wanted checked\n";
      return 2;
    }
    sluice::SetAutoExecutor(sluice::ExecutorMode::kChecked);
  }
  doctest::Context context(argc, argv);
  return context.run();
}
