// Kernels: how one op computes on one kind of device. A kernel is looked up by
// op name, device type and what it supports, made once when a Plan is made,
// and then only run.
#ifndef SLUICE_ENGINE_KERNEL_H_
#define SLUICE_ENGINE_KERNEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/attributes.h"
#include "engine/caught.h"
#include "engine/conv_form.h"
#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Accelerator;
class Collective;
class Exchange;
class Waker;

// The type of a device; the index in its name tells devices of a type apart.
enum class DeviceType : uint8_t {
  kCpu,
  kCuda,
  kNull,  // plans but does not compute
};
std::string_view NameOf(DeviceType type);  // "cpu", "gpu", "null"

// dtype and concrete shape of one operand.
struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;

  size_t bytes() const { return shape.elements() * SizeOf(dtype); }
  std::string ToString() const;  // "float32[32,784]"
  friend bool operator==(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }
};

// Everything a kernel may depend on when it is made.
struct KernelSpec {
  std::string op;
  // The function of engine/semantics/scalar.h that computes each element; "" if
  // the op has none.
  std::string scalar;
  ConvForm conv;       // of a convolution
  std::string node;    // name, for messages
  std::string origin;  // the node's name when it was built: randomness's key
  Attributes attrs;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  // The values of inputs that never change, so that a kernel may bring them
  // into its own layout once. Empty, or parallel to inputs with empty tensors
  // for those that may change.
  std::vector<Tensor> constants;
  bool deterministic = false;  // the same bits for any number of threads
  bool tf32 = false;           // products of float32 may round operands to TF32
};

// The value of input `i` if it is a constant, or null.
inline const Tensor* ConstantInput(const KernelSpec& spec, int i) {
  const bool constant = i < static_cast<int>(spec.constants.size()) &&
                        spec.constants[i].elements() > 0;
  return constant ? &spec.constants[i] : nullptr;
}

// The key of the random numbers that one step draws.
struct StepKey {
  uint64_t seed = 0;  // the session's
  uint64_t step = 0;  // the global step
  uint32_t replica = 0;
};

// The values that stay the same during one step.
struct StepContext : StepKey {
  Exchange* exchange = nullptr;        // null for a step on one device
  Collective* collective = nullptr;    // null where there is one worker
  Accelerator* accelerator = nullptr;  // null on the host
  // On an accelerator: the queue that kernels add their work to (a
  // cudaStream_t), and the key in device memory. Kernels read the key there,
  // since a captured step runs again without them.
  void* stream = nullptr;
  const StepKey* device_key = nullptr;
};

// The operands of one run of a kernel. Shapes and dtypes are fixed by the spec.
class KernelContext {
 public:
  KernelContext() = default;
  KernelContext(void* const* inputs, void* const* outputs, void* workspace,
                const StepContext* step)
      : inputs_(inputs),
        outputs_(outputs),
        workspace_(workspace),
        step_(step) {}

  // Element pointers. An output may be the same buffer as an input only when
  // the op's definition allows it (OpDef::inplace).
  template <typename T>
  const T* input(int i) const {
    return static_cast<const T*>(inputs_[i]);
  }
  template <typename T>
  T* output(int i) const {
    return static_cast<T*>(outputs_[i]);
  }
  // A variable that the op updates (OpDef::mutates).
  template <typename T>
  T* mutable_input(int i) const {
    return static_cast<T*>(inputs_[i]);
  }
  // Kernel::workspace_bytes() of scratch, kAlignment-aligned.
  void* workspace() const { return workspace_; }
  const StepContext& step() const { return *step_; }

 private:
  void* const* inputs_ = nullptr;
  void* const* outputs_ = nullptr;
  void* workspace_ = nullptr;
  const StepContext* step_ = nullptr;
};

// Reports operands that a kernel's queued work on an accelerator found to be
// invalid, which happens after the kernel's Run has returned.
class WorkReport {
 public:
  virtual ~WorkReport() = default;
  // Returns the error found since the last call, the one that the CPU's kernel
  // returns from Run. Called when all of the queued work, or some, is done.
  virtual Status Take() = 0;
};

// Immutable once made; Run may be called again and again, by one thread at a
// time. It must not allocate, lock or format strings unless it fails; what it
// throws, also from within ParallelFor, is the step's error (RunKernel). On an
// accelerator operands are in device memory, and Run adds work to the step's
// stream without waiting for it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Run(const KernelContext& context) = 0;
  // For a kernel that waits for what an earlier instruction has started:
  // whether Run would return without waiting. If not, the kernel keeps `waker`
  // and wakes it once Run would (engine/runtime/waker.h); until then Run is not
  // called, unless the step ends.
  virtual bool Ready(const KernelContext&, Waker&) { return true; }
  virtual size_t workspace_bytes() const { return 0; }
  // Why a step that has this kernel cannot be captured once and replayed
  // without calling Run; empty when it can be.
  virtual std::string_view why_not_captured() const { return {}; }
  // Where this kernel's queued work on an accelerator reports invalid operands;
  // null if it never does.
  virtual std::shared_ptr<WorkReport> report() const { return nullptr; }
};
using KernelPtr = std::unique_ptr<Kernel>;

// A kernel from a callable taking const KernelContext& and returning void or
// Status; the callable's captures are the prepared state.
template <typename Fn>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Fn fn, size_t workspace)
      : fn_(std::move(fn)), workspace_(workspace) {}
  Status Run(const KernelContext& context) override {
    if constexpr (std::is_void_v<decltype(fn_(context))>) {
      fn_(context);
      return {};
    } else {
      return fn_(context);
    }
  }
  size_t workspace_bytes() const override { return workspace_; }

 private:
  Fn fn_;
  size_t workspace_;
};
template <typename Fn>
KernelPtr KernelOf(Fn fn, size_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<Fn>>(std::move(fn), workspace_bytes);
}

// One row of the kernel table.
struct KernelDef {
  std::string op;
  DeviceType device = DeviceType::kCpu;
  // Of the kernels that support a spec the one with the highest priority is
  // made. 0 is the portable reference; libraries and tuned kernels are above.
  int priority = 0;
  std::string provider = "reference";  // who: "reference", "simd", "onednn"
  // Whether make() is worth a try. Null: every dtype in `dtypes`, any shape.
  std::function<bool(const KernelSpec&)> supports = nullptr;
  // dtypes of input 0 (or of output 0 where there is no input).
  DTypeSet dtypes = kAnyType;
  // Makes the kernel. Returns Unimplemented if only the attempt shows that this
  // provider cannot, as a library may lack a case; KernelTable::Make then makes
  // the next kernel.
  std::function<Result<KernelPtr>(const KernelSpec&)> make;
};

// Kernels may be users' code: what they throw while they are made or run is the
// error that is returned.
Result<KernelPtr> MakeKernel(const KernelDef& def, const KernelSpec& spec);
inline Status RunKernel(Kernel& kernel, const KernelContext& context) {
  try {
    return kernel.Run(context);
  } catch (...) {
    return CaughtStatus();
  }
}

// A kernel that KernelTable::Make made.
struct MadeKernel {
  KernelPtr kernel;
  const KernelDef* def = nullptr;
  // The better kernels that could not be made, and why: "cudnn: ...; ...".
  // Mostly empty.
  std::string refused;
};

// Thread-safe. Pointers to rows stay valid as long as the table.
class KernelTable {
 public:
  // The process's table, with the built-in kernels (kernels/cpu/register.cc).
  static KernelTable& Global();

  void Register(KernelDef def);
  // Makes the best kernel for the spec that can be made. If a make() returns
  // another error than Unimplemented, or all return Unimplemented, the first
  // such error is returned. Errors name op and node.
  Result<MadeKernel> Make(const KernelSpec& spec, DeviceType device) const;
  // The best kernel for the spec, or Unimplemented naming op, device and types.
  Result<const KernelDef*> Find(const KernelSpec& spec,
                                DeviceType device) const;
  // Every kernel that supports the spec, best first.
  std::vector<const KernelDef*> FindAll(const KernelSpec& spec,
                                        DeviceType device) const;
  std::vector<const KernelDef*> KernelsOf(std::string_view op) const;
  // For every op with kernels on this type of device, the union of their
  // dtypes (KernelDef::dtypes). A kernel may still not support a spec.
  std::map<std::string, DTypeSet, std::less<>> DTypesByOp(
      DeviceType device) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<KernelDef>>, std::less<>>
      by_op_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_KERNEL_H_
