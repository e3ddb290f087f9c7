#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <sstream>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "engine/accelerator.h"
#include "engine/cpu_features.h"
#include "engine/device.h"
#include "engine/machine_memory.h"
#include "engine/module.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "kernels/cpu/simd/simd.h"
#include "models/train/run/memory_check.h"

namespace sluice::tool {
namespace {

// 0 when unknown.
int64_t Known(size_t bytes) {
  return bytes == MachineMemory::kUnknown ? 0 : static_cast<int64_t>(bytes);
}

std::string Size(int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes < 1 << 20) return fmt::format("{} KiB", bytes >> 10);
  if (bytes < 1 << 30) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// Libraries found when this was built, and those that were not.
std::map<std::string, std::string> Libraries() {
  std::map<std::string, std::string> libraries = {
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000,
                          FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"zlib", zlibVersion()},
      {"protobuf", "absent: no TensorBoard event files"},
      {"png", "absent: no images in event files"},
      {"jpeg", "absent: no JPEG images"},
      {"tls", "absent: nothing goes to other hosts encrypted"},
      {"onednn", "absent: our own kernels alone"}};
  std::istringstream features(SLUICE_FEATURES);
  for (std::string feature; std::getline(features, feature, ',');) {
    std::transform(feature.begin(), feature.end(), feature.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    libraries[feature] = "present";
  }
  return libraries;
}

// The GPUs by name, or why there are none. Loads their kernels.
struct Gpus {
  std::map<std::string, std::string> found;
  std::string why_none;
  // By name, those whose memory each reaches; of several GPUs.
  std::map<std::string, std::vector<std::string>> peers;
  // Where the libraries are that their kernels use.
  ModuleLibraries libraries;
};
Gpus FindGpus() {
  Gpus gpus;
  std::map<std::string, std::unique_ptr<Accelerator>> open;
  for (int i = 0;; ++i) {
    auto gpu = OpenAccelerator(DeviceType::kCuda, i, /*shared=*/false);
    if (!gpu.ok()) {
      if (i == 0) gpus.why_none = gpu.status().message();
      break;
    }
    const std::string name = DeviceName{DeviceType::kCuda, i}.ToString();
    gpus.found[name] = (*gpu)->Describe();
    open[name] = *std::move(gpu);
  }
  gpus.libraries = LibrariesOfModule(DeviceType::kCuda);
  for (const auto& [name, gpu] : open) {
    if (open.size() < 2) break;
    std::vector<std::string>& reached = gpus.peers[name];
    for (const auto& [peer, other] : open) {
      if (peer != name && gpu->Reaches(*other)) reached.push_back(peer);
    }
  }
  return gpus;
}

// How many kernels each provider has.
std::map<std::string, int> Providers() {
  std::map<std::string, int> providers;
  for (const OpDef* op : OpTable::Global().All()) {
    for (const KernelDef* kernel : KernelTable::Global().KernelsOf(op->name)) {
      ++providers[kernel->provider];
    }
  }
  return providers;
}

// One step with a gradient; "ok" or what failed.
std::string SelfTest() {
  try {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 2});
    const Output w = graph.Variable("w", Ones({2, 2}));
    const Output loss = Sum(Square(MatMul(x, w)));
    const Output slope = Gradients({loss}, {w})[0];
    Session session(graph);
    session.Initialize();
    const Tensor got =
        session.Run({{x, Tensor::Array<float>({2, 2}, {1, 2, 3, 4})}}, slope);
    // dL/dw = 2 x^T (x w), with rows of x w being 3 and 7.
    const Tensor wanted = Tensor::Array<float>({2, 2}, {48, 48, 68, 68});
    return got.BitEqual(wanted) ? "ok" : "wrong result " + got.ToString();
  } catch (const Error& error) {
    return error.what();
  }
}

struct Report {
  const CpuFeatures& cpu = Cpu();
  const std::string isa = Simd().isa;
  const int threads = ComputeThreads().threads();
  const MachineMemory memory = ReadMachineMemory();
  const int64_t total = Known(memory.total);
  const int64_t available = Known(memory.available);
  const std::map<std::string, std::string> libraries = Libraries();
  const Gpus gpus = FindGpus();
  const size_t ops = OpTable::Global().All().size();
  const std::map<std::string, int> providers = Providers();
  const std::string self_test = SelfTest();
  const int64_t peak = static_cast<int64_t>(PeakMemory());
};

void PrintText(const Report& report) {
  const auto line = [](std::string_view what, const std::string& text) {
    fmt::print("{:<11} {}\n", what, text);
  };
  const CpuFeatures& cpu = report.cpu;
  line("sluice", fmt::format("{}, {} ops", SLUICE_VERSION, report.ops));
  line("cpu",
       fmt::format("{}, {} cores for this process",
                   cpu.model.empty() ? "unknown" : cpu.model, cpu.cores));
  line("caches", fmt::format("L1 {}, L2 {}, L3 {}", Size(cpu.l1_bytes),
                             Size(cpu.l2_bytes), Size(cpu.l3_bytes)));
  line("vectors", fmt::format("avx2 {}, avx512 {}; kernels use {}",
                              cpu.avx2 ? "yes" : "no",
                              cpu.avx512 ? "yes" : "no", report.isa));
  line("threads", fmt::format("{} for computing", report.threads));
  line("memory", fmt::format("{} of {} available; this process took {}",
                             Size(report.available), Size(report.total),
                             Size(report.peak)));
  line("devices", "/cpu:0; /cpu:N for virtual ones; /null:0 plans only");
  for (const auto& [name, gpu] : report.gpus.found) {
    line("gpu", fmt::format("{} {}", name, gpu));
  }
  for (const auto& [name, peers] : report.gpus.peers) {
    line("gpu peers",
         peers.empty()
             ? fmt::format("{} reaches no other GPU's memory: what others send "
                           "it goes through the host's",
                           name)
             : fmt::format("{} reaches the memory of {}", name,
                           fmt::join(peers, ", ")));
  }
  if (report.gpus.found.empty()) {
    line("gpu", "none: " + report.gpus.why_none);
  }
  for (const auto& [name, place] : report.gpus.libraries) {
    line("gpu uses", fmt::format("{} {}", name, place));
  }
  for (const auto& [name, state] : report.libraries) {
    line("library", fmt::format("{} {}", name, state));
  }
  std::string providers;
  for (const auto& [name, kernels] : report.providers) {
    providers +=
        fmt::format("{}{} {}", providers.empty() ? "" : ", ", kernels, name);
  }
  line("kernels", providers);
  line("self-test", report.self_test);
}

void PrintAsJson(const Report& report) {
  const CpuFeatures& cpu = report.cpu;
  std::vector<std::string> devices = {"/cpu:0"};
  for (const auto& [name, gpu] : report.gpus.found) devices.push_back(name);
  PrintJson({{"version", SLUICE_VERSION},
             {"ops", report.ops},
             {"cpu", cpu.model},
             {"cores", cpu.cores},
             {"l1_bytes", cpu.l1_bytes},
             {"l2_bytes", cpu.l2_bytes},
             {"l3_bytes", cpu.l3_bytes},
             {"avx2", cpu.avx2},
             {"avx512", cpu.avx512},
             {"isa", report.isa},
             {"threads", report.threads},
             {"memory_bytes", report.total},
             {"available_bytes", report.available},
             {"peak_bytes", report.peak},
             {"devices", devices},
             {"gpus", report.gpus.found},
             {"gpu_peers", report.gpus.peers},
             {"no_gpu", report.gpus.why_none},
             {"gpu_libraries", report.gpus.libraries},
             {"libraries", report.libraries},
             {"kernels", report.providers},
             {"self_test", report.self_test}});
}

}  // namespace

void Doctor(bool json) {
  const Report report;
  json ? PrintAsJson(report) : PrintText(report);
  if (report.self_test != "ok") {
    throw Error(Code::kInternal, "the self-test failed: " + report.self_test);
  }
}

}  // namespace sluice::tool
