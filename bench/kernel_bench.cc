// Measures the kernels one by one: time, share of what the machine can do,
// ratio to a peer, and the error against float64. docs/performance.md says how
// to read it. Exits with 1 if any row is wrong.
#include <CLI/CLI.hpp>
#include <iostream>

#include "bench/guarded.h"
#include "bench/kernel_bench/bench.h"
#include "bench/kernel_bench/gpu.h"
#include "engine/device.h"

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
  app.add_option("--device", options.device, "/cpu:0, or a GPU such as /gpu:0")
      ->capture_default_str();
  std::string dtype = "float32";
  app.add_option("--dtype", dtype, "Of the rows of a GPU")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}))
      ->capture_default_str();
  int64_t images = 0;
  app.add_option("--batch", images,
                 "Of ResNet-50's rows; 0: 16 on the CPU, 256 on a GPU, whose "
                 "cache holds less")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", options.json, "One object a line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  options.dtype = *ParseDType(dtype);
  const DeviceName device = ParseDeviceName(options.device).ValueOrThrow();
  const bool on_cpu = device.type == DeviceType::kCpu;
  if (images == 0) images = on_cpu ? kImages : kImagesOnGpu;
  int wrong = 0;
  if (on_cpu) {
    wrong = RunCases(AllCases(images), options, std::cout);
  } else {
    const auto gpu = OpenAccelerator(device.type, device.index, false);
    ThrowIfError(gpu.status().WithContext("device '" + options.device + "'"));
    ThrowIfError((*gpu)->Use());
    wrong = RunCasesOn(**gpu, AllCases(images), options, std::cout);
  }
  if (wrong > 0) std::cerr << "kernel_bench: " << wrong << " rows are wrong\n";
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::Guarded("kernel_bench", sluice::bench::Main, argc, argv,
                                2);
}
