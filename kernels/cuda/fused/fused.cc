// The kernels of Fused and FusedSum.
#include "kernels/cuda/fused/fused.h"

#include <atomic>
#include <utility>

#include "engine/note.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

bool IsAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// Work with its pointers.
FusedArguments ArgumentsOf(const FusedWork& work, const KernelContext& c) {
  FusedArguments a = work.arguments;
  a.whole = work.whole;
  for (size_t i = 0; i < work.form.reads.size(); ++i) {
    const int input = static_cast<int>(i);
    a.inputs[i] = c.input<void>(input);
    const bool packs = work.form.reads[i] == FusedRead::kElements ||
                       work.form.reads[i] == FusedRead::kAlong;
    a.whole = a.whole && (!packs || IsAligned(a.inputs[i]));
  }
  const int outputs = static_cast<int>(work.form.stored.size());
  for (int i = 0; i < outputs; ++i) {
    a.outputs[i] = c.output<void>(i);
    a.whole = a.whole && IsAligned(a.outputs[i]);
  }
  if (work.form.sum != FusedSumKind::kNone) {
    a.sums = a.sum.states ? c.workspace() : c.output<void>(outputs);
  }
  return a;
}

// A kernel that calls launch(work, arguments, stream), then adds segments.
template <typename Launch>
KernelPtr KernelFor(FusedWork work, Launch launch) {
  const size_t workspace = work.workspace_bytes;
  return KernelOf(
      [work = std::move(work), launch](const KernelContext& c) -> Status {
        const FusedArguments arguments = ArgumentsOf(work, c);
        SLUICE_RETURN_IF_ERROR(launch(work, arguments, StreamOf(c)));
        if (!arguments.sum.states) return {};
        return AddSegments(
            work, c.workspace(),
            c.output<void>(static_cast<int>(work.form.stored.size())),
            StreamOf(c));
      },
      workspace);
}

Result<KernelPtr> MakeInterpreted(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(FusedWork work,
                          FusedWorkOf(spec, /*pack=*/1, /*states=*/true));
  SLUICE_ASSIGN_OR_RETURN(const InterpretedProgram program,
                          InterpretedProgramOf(work.form));
  return KernelFor(std::move(work), [program](const FusedWork& w,
                                              const FusedArguments& arguments,
                                              cudaStream_t stream) {
    return LaunchInterpreted(program, w, arguments, stream);
  });
}

}  // namespace

void RegisterFusedKernels(KernelTable& table) {
  for (const char* op : {"Fused", "FusedSum"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .provider = "own",
                    .dtypes = kFloating,
                    .make = MakeInterpreted});
  }
}

void RegisterGeneratedFusedKernels(KernelTable& table, const char* provider,
                                   const HasFusedKernel& has,
                                   FindFusedKernel find) {
  const auto make =
      [find = std::move(find)](const KernelSpec& spec) -> Result<KernelPtr> {
    SLUICE_ASSIGN_OR_RETURN(
        FusedWork work, FusedWorkOf(spec, FusedPack(spec), /*states=*/false));
    const Result<FusedKernel> found = find(spec);
    if (!found.ok()) {
      static std::atomic<bool> told = false;
      NoteOnce(told, found.status().message() +
                         "; the fused program is interpreted, slower");
      return Unimplemented(found.status().message());
    }
    return KernelFor(
        std::move(work),
        [kernel = *found](const FusedWork& w, const FusedArguments& arguments,
                          cudaStream_t stream) {
          return LaunchFused(kernel, w, arguments, stream);
        });
  };
  for (const char* op : {"Fused", "FusedSum"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .priority = 10,
                    .provider = provider,
                    .supports = has,
                    .dtypes = kFloating,
                    .make = make});
  }
}

}  // namespace sluice::cuda
