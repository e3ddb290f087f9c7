// Kernels that move tensors in, out of and within a step.
#include "engine/runtime/rendezvous.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/memory.h"

namespace sluice::cuda {
namespace {

Status Copy(void* to, const void* from, size_t bytes, const KernelContext& c) {
  if (bytes == 0) return {};
  return Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(c)),
               "copy");
}

Result<KernelPtr> MakeCopy(const KernelSpec& spec) {
  return KernelOf([bytes = spec.inputs[0].bytes()](const KernelContext& c) {
    return Copy(c.output<void>(0), c.input<void>(0), bytes, c);
  });
}

// A tensor between the device and the rendezvous, by way of pinned memory.
class Transfer : public Kernel {
 public:
  Transfer(const KernelSpec& spec, size_t bytes)
      : slot_(static_cast<int>(spec.attrs.Int("slot"))), bytes_(bytes) {}

  Status Prepare() {
    SLUICE_ASSIGN_OR_RETURN(pinned_, AllocatePinned(bytes_));
    return {};
  }
  std::string_view why_not_captured() const override {
    return "the host waits for another device's part of the step";
  }

 protected:
  const int slot_;
  const size_t bytes_;
  std::shared_ptr<void> pinned_;
};

class Send final : public Transfer {
 public:
  explicit Send(const KernelSpec& spec)
      : Transfer(spec, spec.inputs[0].bytes()) {}
  Status Run(const KernelContext& c) override {
    SLUICE_RETURN_IF_ERROR(Copy(pinned_.get(), c.input<void>(0), bytes_, c));
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamSynchronize(StreamOf(c)), "wait for what is sent"));
    return c.step().rendezvous->Send(slot_, pinned_.get());
  }
};

class Recv final : public Transfer {
 public:
  explicit Recv(const KernelSpec& spec)
      : Transfer(spec, spec.outputs[0].bytes()) {}
  Status Run(const KernelContext& c) override {
    // The last step's copy from the pinned memory is over.
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamSynchronize(StreamOf(c)), "wait for the last step"));
    SLUICE_RETURN_IF_ERROR(c.step().rendezvous->Recv(slot_, pinned_.get()));
    return Copy(c.output<void>(0), pinned_.get(), bytes_, c);
  }
};

template <typename K>
Result<KernelPtr> Make(const KernelSpec& spec) {
  auto kernel = std::make_unique<K>(spec);
  SLUICE_RETURN_IF_ERROR(kernel->Prepare());
  return KernelPtr(std::move(kernel));
}

}  // namespace

void RegisterControlKernels(KernelTable& table) {
  const auto add = [&](const char* op,
                       Result<KernelPtr> (*make)(const KernelSpec& spec)) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .provider = "own",
                    .make = make});
  };
  add("Copy", MakeCopy);
  add("Fetch", MakeCopy);
  add("Send", Make<Send>);
  add("Recv", Make<Recv>);
}

}  // namespace sluice::cuda
