#include "engine/cpu_features.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "engine/threads.h"

#if defined(__linux__)
#include <unistd.h>
#endif

namespace sluice {
namespace {

// From /proc/cpuinfo; empty where there is none.
std::string ModelName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      const size_t value = line.find_first_not_of(": \t", line.find(':'));
      return value == std::string::npos ? "" : line.substr(value);
    }
  }
  return "";
}

CpuFeatures Detect() {
  CpuFeatures f;
  f.model = ModelName();
  f.cores = AvailableCores();
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#endif
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  f.l1_bytes = std::max(0L, sysconf(_SC_LEVEL1_DCACHE_SIZE));
  f.l2_bytes = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  f.l3_bytes = std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  return f;
}

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures* const features = new CpuFeatures(Detect());
  return *features;
}

const std::string& ChosenIsa() {
  static const std::string chosen = [] {
    const auto has = [](std::string_view isa) {
      return isa == "baseline" || (isa == "avx2" && Cpu().avx2) ||
             (isa == "avx512" && Cpu().avx512);
    };
    const char* const wanted = std::getenv("SLUICE_ISA");
    for (const char* isa : {wanted, "avx512", "avx2"}) {
      if (isa != nullptr && has(isa)) return std::string(isa);
    }
    return std::string("baseline");
  }();
  return chosen;
}

}  // namespace sluice
