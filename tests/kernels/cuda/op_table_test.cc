// Walks the table of ops and runs every CUDA kernel on the op's probes in every
// dtype it claims: within its buffers, the same bits again and in place, and
// what the CPU's reference kernel computes. Emulated, in every order of threads
// and for different numbers of blocks.
#include <doctest/doctest.h>
#include <fmt/format.h>

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

// Every CUDA kernel of one op. Returns how many runs there were.
int CheckOp(const OpDef& op, Faults& faults) {
  int ran = 0;
  std::vector<TypeBinding> bindings = OtherBindings(op);
  bindings.insert(bindings.begin(), WidestBinding(op));
  for (int p = 0; p < op.probes.size(); ++p) {
    for (const TypeBinding& binding : bindings) {
      bool integral = false;
      for (const auto& [name, dtype] : binding) integral |= !IsFloating(dtype);
      if (integral && HasNonFinite(op.probes[p])) continue;
      const ProbeCase c = MakeProbeCase(op, op.probes[p], binding);
      // cuDNN's fastest may be one that gives other bits in each run.
      const KernelSpec spec =
          SpecOf(*c.node, /*deterministic=*/testing::OnRealGpu());
      const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
      if (all.empty()) continue;
      const KernelPtr reference = all.back()->make(spec).ValueOrThrow();
      const std::vector<Tensor> wanted =
          GuardedRun(*reference, spec, c.values, c.node->mutates()).tensors;
      for (const KernelDef* def :
           KernelTable::Global().FindAll(spec, DeviceType::kCuda)) {
        ++ran;
        CheckKernel(c, spec, *def, wanted,
                    fmt::format("probe {} {}", p, ToString(binding)), faults);
      }
    }
  }
  for (const Probe& probe : op.probes) {
    for (EmptiedCase& e : EmptiedCases(op, probe, bindings[0])) {
      e.spec.deterministic = testing::OnRealGpu();
      for (const KernelDef* def :
           KernelTable::Global().FindAll(e.spec, DeviceType::kCuda)) {
        ++ran;
        CheckKernel(e.c, e.spec, *def, e.wanted, e.what, faults);
      }
    }
  }
  return ran;
}

// Every CUDA kernel of the ops that `wanted` names, or of all.
void CheckOps(std::string_view wanted = "") {
  int ran = 0;
  std::string lacking;
  for (const OpDef* op : OpTable::Global().All()) {
    if (!NeedsProbe(*op) || op->view) continue;
    if (op->collective) continue;  // of the host, so far
    if (!wanted.empty() && wanted != op->name) continue;
    Faults faults;
    int runs = 0;
    try {
      runs = CheckOp(*op, faults);
    } catch (const Error& error) {
      faults.Add(error.what());
    }
    CHECK_MESSAGE(faults.empty(), op->name << ":" << faults.ToString());
    // Where rows are counted as the step runs is the host (CountOnCpu).
    const bool counts = op->counter != nullptr || op->reads_counted != nullptr;
    if (runs == 0 && !counts) lacking += " " + std::string(op->name);
    ran += runs;
  }
  CHECK(ran > 0);
  CHECK_MESSAGE(lacking.empty(), "no CUDA kernel for" << lacking);
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
