// Fused programs on CUDA, interpreted and by generated kernels, against the
// CPU's kernels. Emulated, or on a real GPU
// (tests/kernels/cuda/emulation/gpu.h).
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "kernels/cuda/fused/fused_source.h"
#include "kernels/cuda/runtime/kernels.h"
#include "tests/kernels/cuda/emulation/device_run.h"
#include "tests/kernels/cuda/emulation/fused/compiled.h"
#include "tests/kernels/cuda/emulation/fused/specs.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/notes.h"
#include "tests/support/op_check.h"
#include "tests/support/random_graph.h"

namespace sluice::testing {
namespace {

Result<cuda::FusedKernel> FindKernel(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(
      const cuda::FusedWork work,
      cuda::FusedWorkOf(spec, cuda::FusedPack(spec), /*states=*/false));
  const std::string name = cuda::FusedSourceOf(work.form).name;
  const cuda::FusedKernel kernel = FindCompiledFused(name);
  if (kernel == nullptr) return Unimplemented("no compiled kernel " + name);
  return kernel;
}

KernelTable& CudaKernels() {
  static KernelTable* const kTable = [] {
    auto* table = new KernelTable();
    cuda::RegisterFusedKernels(*table);
    cuda::RegisterGeneratedFusedKernels(
        *table, "generated",
        [](const KernelSpec& spec) { return FindKernel(spec).ok(); },
        FindKernel);
    return table;
  }();
  return *kTable;
}

// The outputs of a kernel whose operands begin `skip` bytes past a multiple of
// 16; the first may be `in_place` of an input, unless that is -1.
std::vector<Tensor> RunOnDevice(Kernel& kernel, const KernelSpec& spec,
                                const std::vector<Tensor>& inputs, size_t skip,
                                int in_place) {
  std::vector<DeviceBuffer> buffers;
  std::vector<void*> in, out;
  for (const Tensor& input : inputs) {
    in.push_back(buffers.emplace_back(input, skip).get());
  }
  std::vector<DeviceBuffer> results;
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    results.push_back(k == 0 && in_place >= 0
                          ? buffers[in_place]
                          : DeviceBuffer(spec.outputs[k].bytes(), skip));
    out.push_back(results.back().get());
  }
  const DeviceBuffer workspace(kernel.workspace_bytes());
  const StepContext step;
  const Status status =
      kernel.Run(KernelContext(in.data(), out.data(), workspace.get(), &step));
  REQUIRE_MESSAGE(status.ok(), status.message());
  std::vector<Tensor> outputs;
  for (size_t k = 0; k < results.size(); ++k) {
    outputs.push_back(
        results[k].Read(spec.outputs[k].dtype, spec.outputs[k].shape));
  }
  return outputs;
}

// The first input that the first output may take the place of, or -1.
int InPlaceInput(const KernelSpec& spec) {
  if (spec.op == "FusedSum") return -1;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].bytes() == spec.outputs[0].bytes()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// fn(spec, inputs, what the CPU computes) for all programs.
template <typename Fn>
void ForEachProgram(Fn fn) {
  unsigned seed = 0;
  for (const KernelSpec& spec : FusedSpecs()) {
    CAPTURE(spec.op);
    CAPTURE(spec.attrs.String("program"));
    CAPTURE(spec.attrs.ShapeOf("shape").ToString());
    std::vector<Tensor> inputs;
    for (const TensorType& input : spec.inputs) {
      inputs.push_back(RandomTensor(input.dtype, input.shape, -1, 1, ++seed));
    }
    fn(spec, inputs, CpuResults(spec.op, spec.attrs, inputs, spec.outputs));
  }
}

TEST_CASE("fused programs compute what the CPU does") {
  if (OnRealGpu()) return;
  ForEachProgram([](const KernelSpec& spec, const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& wanted) {
    const auto all = CudaKernels().FindAll(spec, DeviceType::kCuda);
    CHECK_EQ(all.size(), 2);
    for (const KernelDef* def : all) {
      CAPTURE(def->provider);
      const KernelPtr kernel = def->make(spec).ValueOrThrow();
      const std::vector<Tensor> got = InEveryOrder(
          [&] { return RunOnDevice(*kernel, spec, inputs, 0, -1); });
      const std::string difference =
          Difference(got, wanted, AllowanceFor(spec, inputs));
      CHECK_MESSAGE(difference.empty(), difference);
      // Without packs, and in place.
      const size_t skip = SizeOf(spec.inputs[0].dtype);
      CHECK(SameBits(RunOnDevice(*kernel, spec, inputs, skip, -1), got));
      const int in_place = InPlaceInput(spec);
      if (in_place >= 0) {
        CHECK(SameBits(RunOnDevice(*kernel, spec, inputs, 0, in_place), got));
      }
    }
  });
}

TEST_CASE("on a real GPU, too") {
  if (!OnRealGpu()) return;
  const auto gpu = OpenAccelerator(DeviceType::kCuda, 0, false).ValueOrThrow();
  GuardedRunOptions options{.accelerator = gpu.get()};
  options.step.stream = gpu->stream(Accelerator::kCompute);
  std::map<std::string, int> runs;  // of each provider
  ForEachProgram([&](const KernelSpec& spec, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& wanted) {
    for (const KernelDef* def :
         KernelTable::Global().FindAll(spec, DeviceType::kCuda)) {
      CAPTURE(def->provider);
      Result<KernelPtr> made = def->make(spec);
      if (made.status().code() == Code::kUnimplemented) {
        MESSAGE(def->provider, " has no kernel: ", made.status().message());
        continue;
      }
      const KernelPtr kernel = std::move(made).ValueOrThrow();
      const GuardedRunResult got =
          GuardedRun(*kernel, spec, inputs, /*mutates=*/0, options);
      CHECK_MESSAGE(got.fault.empty(), got.fault);
      const std::string difference =
          Difference(got.tensors, wanted, AllowanceFor(spec, inputs));
      CHECK_MESSAGE(difference.empty(), difference);
      ++runs[def->provider];
    }
  });
  CHECK(runs["own"] > 0);
  CHECK(runs["nvrtc"] > 0);
  MESSAGE(runs["own"] << " interpreted, " << runs["nvrtc"] << " generated");
}

TEST_CASE("random graphs compute on a GPU what they do on the CPU") {
  for (uint32_t seed = 101; seed <= 112; ++seed) {
    CAPTURE(seed);
    Graph graph;
    RandomGraph random(graph, seed);
    random.Build(5 + static_cast<int>(seed) % 30);
    const auto wanted = RunGraph(graph, random, {.fuse = false});
    const auto got = RunGraph(graph, random, OnGpu());
    REQUIRE_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(Distance(got[i], wanted[i]) < 1e-5);
    }
  }
}

TEST_CASE("a program that cannot be compiled is interpreted, said once") {
  KernelTable table;
  cuda::RegisterFusedKernels(table);
  cuda::RegisterGeneratedFusedKernels(
      table, "generated", [](const KernelSpec&) { return true; },
      [](const KernelSpec&) -> Result<cuda::FusedKernel> {
        return Internal("NVRTC 12.0: no such option");
      });
  const KernelSpec spec = FusedSpecs().front();
  const KernelDef* best = table.Find(spec, DeviceType::kCuda).ValueOrThrow();
  CHECK_EQ(best->provider, "generated");
  MadeKernel made;
  const auto make = [&] {
    made = table.Make(spec, DeviceType::kCuda).ValueOrThrow();
  };
  CHECK_EQ(NotesOf(make),
           "NVRTC 12.0: no such option; the fused program is interpreted, "
           "slower\n");
  CHECK_EQ(NotesOf(make), "");
  REQUIRE(made.def != nullptr);
  CHECK_EQ(made.def->provider, "own");
  CHECK_EQ(made.refused, "generated: NVRTC 12.0: no such option");
}

}  // namespace
}  // namespace sluice::testing
