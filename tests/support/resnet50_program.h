// The resnet50 program from outside.
#ifndef SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace sluice::testing {

inline Outcome RunResNet50(const std::vector<std::string>& arguments) {
  return RunProgram(SLUICE_BIN_DIR "/resnet50", arguments);
}

inline void CheckResNet50Error(const Outcome& outcome, int code,
                               const std::string& part) {
  CheckError(outcome, "resnet50", code, part);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RESNET50_PROGRAM_H_
