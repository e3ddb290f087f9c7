#include "engine/cpu_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "engine/status.h"
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

// A CPU that has one of them has those before it.
constexpr std::string_view kIsas[] = {"baseline", "avx2", "avx512"};

std::string ChooseIsa() {
  const std::string_view* const best = kIsas + (Cpu().avx512 ? 2
                                                : Cpu().avx2 ? 1
                                                             : 0);
  const char* const given = std::getenv("SLUICE_ISA");
  const std::string_view wanted = given == nullptr ? "" : given;
  if (wanted.empty()) return std::string(*best);
  const std::string_view* const found =
      std::find(std::begin(kIsas), std::end(kIsas), wanted);
  if (found == std::end(kIsas)) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("SLUICE_ISA={}: wanted baseline, avx2 or avx512", wanted));
  }
  if (found > best) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("SLUICE_ISA={}: this CPU has {} at most", wanted, *best));
  }
  return std::string(wanted);
}

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures* const features = new CpuFeatures(Detect());
  return *features;
}

const std::string& ChosenIsa() {
  static const std::string chosen = ChooseIsa();
  return chosen;
}

}  // namespace sluice
