// The command line of a training program.
#ifndef SLUICE_MODELS_CLI_MAIN_H_
#define SLUICE_MODELS_CLI_MAIN_H_

#include "engine/visibility.h"
#include "models/train/run/model_spec.h"

namespace SLUICE_PUBLIC sluice {

// Runs `<program> train|eval|predict|export|bench` with flags for data,
// checkpoints, training and reports (--help lists them) and those of the spec.
// Results go to stdout, with --json one object per line, everything else to
// stderr. Returns the exit code: 0; 2 for a wrong command line; 1 for every
// other error, said in one line; 128 + the signal after SIGINT or SIGTERM, when
// what was trained is saved. Throws nothing.
int Main(int argc, const char* const* argv, const TrainerSpec& spec);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_MAIN_H_
