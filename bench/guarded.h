// What a benchmark's main does with what it throws.
#ifndef SLUICE_BENCH_GUARDED_H_
#define SLUICE_BENCH_GUARDED_H_

#include <iostream>
#include <string_view>

#include "engine/note.h"
#include "engine/status.h"

namespace sluice::bench {

// Main's exit code; where it throws an Error that is one line, and `failed`.
// What the engine has to say goes to stderr.
inline int Guarded(const char* program, int (*main)(int, char**), int argc,
                   char** argv, int failed = 1) {
  SetNotes([](std::string_view line) { std::cerr << line << std::endl; });
  try {
    return main(argc, argv);
  } catch (const Error& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return failed;
  }
}

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_GUARDED_H_
