#include "engine/runtime/transfer.h"

#include <memory>

#include "engine/runtime/rendezvous.h"

namespace sluice {
namespace {

// One of Exchange's functions, with the edge of the node's attributes.
using Call = Status (Exchange::*)(const Edge& edge, const DeviceView& view);
// What says whether that would wait.
using Asked = bool (Exchange::*)(const Edge& edge, Waker& waker);

class Transfer final : public Kernel {
 public:
  // `call` gets the first input, or, of a node without any, the output.
  Transfer(const KernelSpec& spec, Call call, Asked asked)
      : edge_{.number = static_cast<int>(spec.attrs.Int("edge")),
              .sender = static_cast<uint64_t>(spec.attrs.Int("sender")),
              .receiver = static_cast<uint64_t>(spec.attrs.Int("receiver")),
              .bytes =
                  (spec.inputs.empty() ? spec.outputs : spec.inputs)[0].bytes(),
              .name = spec.attrs.String("key")},
        call_(call),
        asked_(asked),
        of_input_(!spec.inputs.empty()) {}

  Status Run(const KernelContext& c) override {
    const StepContext& step = c.step();
    if (step.exchange == nullptr) {
      return Internal("the step runs without a rendezvous");
    }
    void* const data = of_input_ ? c.mutable_input<void>(0) : c.output<void>(0);
    return (step.exchange->*call_)(edge_, {data, step.accelerator});
  }
  bool Ready(const KernelContext& c, Waker& waker) override {
    Exchange* const exchange = c.step().exchange;
    return asked_ == nullptr || exchange == nullptr ||
           (exchange->*asked_)(edge_, waker);
  }
  std::string_view why_not_captured() const override {
    return "the host takes part in what goes to and comes from other devices";
  }

 private:
  const Edge edge_;
  const Call call_;
  const Asked asked_;  // null: it waits for nobody
  const bool of_input_;
};

}  // namespace

void RegisterTransferKernels(KernelTable& table, DeviceType device) {
  const auto add = [&](const char* op, Call call, Asked asked = nullptr) {
    table.Register(
        {.op = op,
         .device = device,
         .provider = "own",
         .make = [call, asked](const KernelSpec& spec) -> Result<KernelPtr> {
           return KernelPtr(std::make_unique<Transfer>(spec, call, asked));
         }});
  };
  add("SendStart", &Exchange::StartSend);
  add("SendWait", &Exchange::WaitSent, &Exchange::Sent);
  add("RecvStart", &Exchange::StartReceive);
  add("RecvWait", &Exchange::WaitReceived, &Exchange::Received);
}

}  // namespace sluice
