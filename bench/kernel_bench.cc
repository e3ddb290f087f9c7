// Measures the kernels one by one: time, share of what the machine can do,
// ratio to a peer, and the error against float64. docs/performance.md says how
// to read it. Exits with 1 if any row is wrong.
#include <CLI/CLI.hpp>
#include <iostream>

#include "bench/kernel_bench/bench.h"

namespace sluice::bench {
namespace {

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times single kernels beside their peers");
  app.add_option("--suite", options.suites, "Of these suites only")
      ->check(CLI::IsMember({"gemm", "conv", "elementwise", "chain",
                             "reduction", "softmax", "batch_norm", "pool",
                             "optimizer", "memcpy"}));
  app.add_option("--filter", options.filter,
                 "Rows whose name (suite, op, shape, pass) contains this");
  app.add_option("--provider", options.provider,
                 "Kernels of this provider: reference, simd, onednn, ...");
  app.add_option("--threads", options.threads, "0: one per core")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", options.seconds, "Per side of a row, about")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "One object a line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const int wrong = RunCases(AllCases(), options, std::cout);
  if (wrong > 0) std::cerr << "kernel_bench: " << wrong << " rows are wrong\n";
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    return sluice::bench::Main(argc, argv);
  } catch (const sluice::Error& error) {
    std::cerr << "kernel_bench: " << error.what() << std::endl;
    return 2;
  }
}
