#include "engine/runtime/transfer.h"

#include <memory>

#include "engine/runtime/rendezvous.h"

namespace sluice {
namespace {

using Call = Transfer::Call;

Status Do(Call call, Exchange& exchange, const Edge& edge,
          const DeviceView& view) {
  switch (call) {
    case Call::kSendStart:
      return exchange.StartSend(edge, view);
    case Call::kSendWait:
      return exchange.WaitSent(edge, view);
    case Call::kRecvStart:
      return exchange.StartReceive(edge, view);
    case Call::kRecvWait:
      return exchange.WaitReceived(edge, view);
  }
  return Internal("no such transfer");
}

class TransferKernel final : public Kernel {
 public:
  // The view is of the first input, or, of a node without any, the output.
  TransferKernel(const KernelSpec& spec, Call call)
      : edge_{.number = static_cast<int>(spec.attrs.Int("edge")),
              .sender = static_cast<uint64_t>(spec.attrs.Int("sender")),
              .receiver = static_cast<uint64_t>(spec.attrs.Int("receiver")),
              .bytes =
                  (spec.inputs.empty() ? spec.outputs : spec.inputs)[0].bytes(),
              .name = spec.attrs.String("key")},
        call_(call),
        of_input_(!spec.inputs.empty()) {}

  Status Run(const KernelContext& c) override {
    const StepContext& step = c.step();
    if (step.exchange == nullptr) {
      return Internal("the step runs without a rendezvous");
    }
    void* const data = of_input_ ? c.mutable_input<void>(0) : c.output<void>(0);
    return Do(call_, *step.exchange, edge_, {data, step.accelerator});
  }
  bool Ready(const KernelContext& c, Waker& waker) override {
    Exchange* const exchange = c.step().exchange;
    if (exchange == nullptr) return true;
    switch (call_) {
      case Call::kSendWait:
        return exchange->Sent(edge_, waker);
      case Call::kRecvWait:
        return exchange->Received(edge_, waker);
      default:
        return true;
    }
  }
  std::string_view why_not_captured() const override {
    return "the host takes part in what goes to and comes from other devices";
  }
  Transfer transfer() const { return {call_, &edge_}; }

 private:
  const Edge edge_;
  const Call call_;
  const bool of_input_;
};

}  // namespace

Transfer TransferOf(const Kernel& kernel) {
  const auto* transfer = dynamic_cast<const TransferKernel*>(&kernel);
  return transfer == nullptr ? Transfer() : transfer->transfer();
}

void RegisterTransferKernels(KernelTable& table, DeviceType device) {
  const auto add = [&](const char* op, Call call) {
    table.Register(
        {.op = op,
         .device = device,
         .provider = "own",
         .make = [call](const KernelSpec& spec) -> Result<KernelPtr> {
           return KernelPtr(std::make_unique<TransferKernel>(spec, call));
         }});
  };
  add("SendStart", Call::kSendStart);
  add("SendWait", Call::kSendWait);
  add("RecvStart", Call::kRecvStart);
  add("RecvWait", Call::kRecvWait);
}

}  // namespace sluice
