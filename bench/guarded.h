// What a benchmark's main does with what it throws.
#ifndef SLUICE_BENCH_GUARDED_H_
#define SLUICE_BENCH_GUARDED_H_

#include <iostream>

#include "engine/status.h"

namespace sluice::bench {

// Main's exit code; where it throws an Error that is one line, and `failed`.
inline int Guarded(const char* program, int (*main)(int, char**), int argc,
                   char** argv, int failed = 1) {
  try {
    return main(argc, argv);
  } catch (const Error& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return failed;
  }
}

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_GUARDED_H_
