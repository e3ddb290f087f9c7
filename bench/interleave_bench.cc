// Times reading TFRecord files in turn, 32 at a time (datasets::Records), on
// one thread and on several, which take turns:
//
//   interleave_bench FILES... --threads 1 2 0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "bench/guarded.h"
#include "engine/status.h"
#include "io/pipeline/dataset.h"
#include "io/records/file_datasets.h"

namespace sluice {
namespace {

// Records per second of one pass.
double Rate(const std::vector<std::string>& paths, int threads) {
  Iterator records = datasets::Records(paths, {.cycle = 32, .threads = threads})
                         .MakeIterator();
  Example record;
  int64_t n = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (records.Next(&record).ValueOrThrow()) ++n;
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - begin;
  return static_cast<double>(n) / time.count();
}

int Main(int argc, char** argv) {
  std::vector<std::string> paths;
  std::vector<int> threads = {1, 2, 0};
  int rounds = 5;
  CLI::App app("Times reading record files in turn");
  app.option_defaults()->always_capture_default();
  app.add_option("files", paths)->required()->check(CLI::ExistingFile);
  app.add_option("--threads", threads, "0: chosen")->check(CLI::Range(0, 256));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  std::map<int, std::vector<double>> rates;
  for (int round = 0; round < rounds; ++round) {
    for (const int n : threads) rates[n].push_back(Rate(paths, n));
  }
  for (auto& [n, of] : rates) {
    std::sort(of.begin(), of.end());
    std::cout << fmt::format(
        "{} threads {:9.1f} records/s ({:.1f} to {:.1f})\n", n,
        of[of.size() / 2], of.front(), of.back());
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("interleave_bench", sluice::Main, argc, argv);
}
