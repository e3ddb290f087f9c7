// Walks the table of ops and runs every CUDA kernel on the op's probes in every
// dtype, without elements and of many operands, too: there is a kernel where
// the CPU has one, which stays within its buffers, gives the same bits again
// and in place, and computes what the CPU's reference does. Emulated, in every
// order of threads and for different numbers of blocks.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/guarded_run.h"
#include "tests/support/op_check.h"

namespace sluice::testing {
namespace {

namespace emulation = cuda::emulation;

// In every order of threads, then with two blocks only.
constexpr int kOrders = 4;
void SetOrder(int i) {
  emulation::SetOrder(i < 3 ? emulation::kOrders[i]
                            : emulation::Order::kReversed);
  emulation::SetMostBlocks(i < 3 ? 0 : 2);
}

// Null: the host's memory and no queue, as the emulation can also have it. Then
// the address sanitizer sees what is read beyond a buffer.
Accelerator* accelerator = nullptr;

void CheckKernel(const ProbeCase& c, const KernelSpec& spec,
                 const KernelDef& def, const std::vector<Tensor>& wanted,
                 const std::string& where, Faults& faults) {
  const std::string who = where + ", kernel " + def.provider;
  Result<KernelPtr> kernel = def.make(spec);
  // What is generated or a library's may leave a case to the next kernel.
  if (kernel.status().code() == Code::kUnimplemented && def.provider != "own") {
    return;
  }
  if (!kernel.ok()) {
    faults.Add(who + ": " + kernel.status().message());
    return;
  }
  const StepKey key;
  const DeviceMemory memory(accelerator);
  Tensor key_bytes(DType::kUInt8, {sizeof(key)});
  std::memcpy(key_bytes.raw(), &key, sizeof(key));
  const Tensor device_key = memory.Upload(key_bytes).ValueOrThrow();
  const auto run = [&](int in_place, unsigned char fill) {
    GuardedRunOptions options{.in_place = in_place, .fill = fill};
    options.step.device_key = static_cast<const StepKey*>(device_key.raw());
    options.accelerator = accelerator;
    if (accelerator != nullptr) {
      options.step.stream = accelerator->stream(Accelerator::kCompute);
    }
    const GuardedRunResult result =
        GuardedRun(**kernel, spec, c.values, c.node->mutates(), options);
    if (!result.fault.empty()) faults.Add(who + ": " + result.fault);
    return result.tensors;
  };
  SetOrder(0);
  const std::vector<Tensor> first = run(-1, 0xcd);
  for (int i = 1; i < kOrders; ++i) {
    SetOrder(i);
    if (!SameBits(run(-1, 0x37), first)) {
      faults.Add(who +
                 ": the bits depend on the order of threads or blocks, or "
                 "elements are left unwritten");
    }
  }
  for (int i : c.node->op().inplace) {
    if (i < c.node->num_inputs() &&
        spec.inputs[i].bytes() == spec.outputs[0].bytes() &&
        !SameBits(run(i, 0xcd), first)) {
      faults.Add(fmt::format("{}: wrong in place of input {}", who, i));
    }
  }
  const std::string difference =
      Difference(first, wanted, AllowanceFor(spec, c.values));
  if (!difference.empty()) {
    faults.Add(fmt::format("{} against the CPU: {}", who, difference));
  }
}

// Every CUDA kernel for a case that the CPU has one for, and there must be one.
void CheckKernels(const ProbeCase& c, const KernelSpec& spec,
                  const std::vector<Tensor>& wanted, const std::string& where,
                  Faults& faults) {
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCuda);
  if (all.empty()) faults.Add(where + ": there is no CUDA kernel");
  for (const KernelDef* def : all) {
    CheckKernel(c, spec, *def, wanted, where, faults);
  }
}

void CheckProbe(const OpDef& op, const Probe& probe, const TypeBinding& binding,
                const std::string& where, Faults& faults) {
  const ProbeCase c = MakeProbeCase(op, probe, binding);
  // cuDNN's fastest may be one that gives other bits in each run.
  const KernelSpec spec =
      SpecOf(*c.node, /*deterministic=*/testing::OnRealGpu());
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
  if (all.empty()) return;
  const KernelPtr reference = all.back()->make(spec).ValueOrThrow();
  const std::vector<Tensor> wanted =
      GuardedRun(*reference, spec, c.values, c.node->mutates()).tensors;
  CheckKernels(c, spec, wanted, where, faults);
}

void CheckOthers(std::vector<OtherCase> cases, const std::string& where,
                 Faults& faults) {
  for (OtherCase& other : cases) {
    other.spec.deterministic = testing::OnRealGpu();
    CheckKernels(other.c, other.spec, other.wanted, where + ", " + other.what,
                 faults);
  }
}

void CheckOp(const OpDef& op, Faults& faults) {
  std::vector<TypeBinding> bindings = OtherBindings(op);
  bindings.insert(bindings.begin(), WidestBinding(op));
  for (int p = 0; p < op.probes.size(); ++p) {
    const Probe& probe = op.probes[p];
    for (const TypeBinding& binding : bindings) {
      const std::string where =
          fmt::format("probe {} {}", p, ToString(binding));
      bool integral = false, float32 = false, half = false;
      for (const auto& [name, dtype] : binding) {
        integral |= !IsFloating(dtype);
        float32 |= dtype == DType::kFloat32;
        half |= dtype == DType::kFloat16;
      }
      if (!integral || !HasNonFinite(probe)) {
        CheckProbe(op, probe, binding, where, faults);
      }
      // Libraries have nothing for the widest, float64.
      const bool widest = &binding == &bindings[0];
      if (widest || float32) {
        CheckOthers(EmptiedCases(op, probe, binding), where, faults);
      }
      // Sums of halves are kept in a wider type.
      if (p == 0 && (widest || half)) {
        CheckOthers(ManyCases(op, probe, binding), where, faults);
      }
    }
  }
}

// Where rows are counted as the step runs is the host (CountOnCpu).
bool IsOfTheHost(const OpDef& op) {
  const bool counts = op.counter != nullptr || op.reads_counted != nullptr;
  const auto kernels = KernelTable::Global().KernelsOf(op.name);
  return counts &&
         std::none_of(kernels.begin(), kernels.end(), [](const KernelDef* k) {
           return k->device == DeviceType::kCuda;
         });
}

// The CUDA kernels of the op that `wanted` names, or of all.
void CheckOps(std::string_view wanted = "") {
  int checked = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    if (!NeedsProbe(*op) || op->view || IsOfTheHost(*op)) continue;
    if (op->collective) continue;  // of the host, so far
    if (!wanted.empty() && wanted != op->name) continue;
    ++checked;
    Faults faults;
    try {
      CheckOp(*op, faults);
    } catch (const Error& error) {
      faults.Add(error.what());
    }
    CHECK_MESSAGE(faults.empty(), op->name << ":" << faults.ToString());
  }
  CHECK(checked > 0);
}

TEST_CASE("every CUDA kernel computes what the CPU's reference does") {
  RegisterGpu();
  if (!OnRealGpu()) {
    CheckOps();
    return;
  }
  const auto gpu = OpenAccelerator(DeviceType::kCuda, 0, false).ValueOrThrow();
  MESSAGE(gpu->Describe());
  accelerator = gpu.get();
  CheckOps();
  accelerator = nullptr;
}

TEST_CASE("kernels run on a queue, in device memory") {
  if (OnRealGpu()) return;  // all did
  RegisterGpu();
  const auto gpu = OpenAccelerator(DeviceType::kCuda, 0, false).ValueOrThrow();
  accelerator = gpu.get();
  CheckOps("Softmax");
  CheckOps("MaxPoolGrad");
  accelerator = nullptr;
}

}  // namespace
}  // namespace sluice::testing
