#include "engine/runtime/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "engine/runtime/rendezvous.h"
#include "engine/semantics/random.h"
#include "engine/semantics/row_bytes.h"

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

class TransferKernel : public TransferOp {
 public:
  // The view is of the first input, or, of a node without any, the output.
  TransferKernel(const KernelSpec& spec, Call call)
      : edge_{.number = static_cast<int>(spec.attrs.Int("edge")),
              .sender = static_cast<uint64_t>(spec.attrs.Int("sender")),
              .receiver = static_cast<uint64_t>(spec.attrs.Int("receiver")),
              .bytes =
                  (spec.inputs.empty() ? spec.outputs : spec.inputs)[0].bytes(),
              .name = spec.attrs.String("key"),
              .mark =
                  static_cast<uint32_t>(HashName(spec.attrs.String("key")))},
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
  Transfer transfer() const override { return {call_, &edge_}; }

 protected:
  Edge edge_;

 private:
  const Call call_;
  const bool of_input_;
};

// The same for the first rows of a tensor, as many as are counted when the step
// runs: of host memory, since the count has to be at hand. Its edge is the
// run's, of which there is one at a time (engine/kernel.h): a copy would have
// to allocate its name.
class CountedSend final : public TransferKernel {
 public:
  explicit CountedSend(const KernelSpec& spec)
      : TransferKernel(spec, Call::kSendStart),
        most_(spec.inputs[0].shape[0]),
        row_bytes_(RowBytes(spec.inputs[0])) {}

  Status Run(const KernelContext& c) override {
    const int64_t count = *c.input<int64_t>(1);
    if (count < 0 || count > most_) {
      return OutOfRange(fmt::format("'{}': {} rows of {} are to be sent",
                                    edge_.name, count, most_));
    }
    edge_.bytes = static_cast<size_t>(count) * row_bytes_;
    return TransferKernel::Run(c);
  }

 private:
  const int64_t most_;
  const size_t row_bytes_;
};

class CountedReceive final : public TransferKernel {
 public:
  CountedReceive(const KernelSpec& spec, Call call)
      : TransferKernel(spec, call),
        waits_(call == Call::kRecvWait),
        knows_(spec.inputs.size() > 1),
        most_(spec.outputs[0].shape[0]),
        row_bytes_(RowBytes(spec.outputs[0])) {
    edge_.some = true;
  }

  Status Run(const KernelContext& c) override {
    SLUICE_RETURN_IF_ERROR(TransferKernel::Run(c));
    if (!waits_) return {};
    // No more than there is room for.
    const size_t bytes = c.step().exchange->ReceivedBytes(edge_);
    const int64_t count =
        knows_ ? *c.input<int64_t>(1)
               : static_cast<int64_t>(bytes / std::max<size_t>(row_bytes_, 1));
    if (count < 0 || count > most_ ||
        static_cast<size_t>(count) * row_bytes_ != bytes) {
      return DataLoss(fmt::format(
          "'{}': {} bytes came, wanted {} rows of {} bytes", edge_.name, bytes,
          knows_ ? fmt::to_string(count) : "some", row_bytes_));
    }
    *c.output<int64_t>(1) = count;
    return {};
  }

 private:
  const bool waits_, knows_;
  const int64_t most_;
  const size_t row_bytes_;
};

Result<KernelPtr> MakeSendStart(const KernelSpec& spec, DeviceType device) {
  if (spec.inputs.size() == 1) {
    return KernelPtr(std::make_unique<TransferKernel>(spec, Call::kSendStart));
  }
  if (device != DeviceType::kCpu) {
    return Unimplemented("what is counted is sent from the host's memory");
  }
  return KernelPtr(std::make_unique<CountedSend>(spec));
}

template <typename Made>
void Add(KernelTable& table, DeviceType device, const char* op, Call call) {
  table.Register({.op = op,
                  .device = device,
                  .provider = "own",
                  .make = [call](const KernelSpec& spec) -> Result<KernelPtr> {
                    return KernelPtr(std::make_unique<Made>(spec, call));
                  }});
}

}  // namespace

Transfer TransferOf(const Kernel& kernel) {
  const auto* transfer = dynamic_cast<const TransferOp*>(&kernel);
  return transfer == nullptr ? Transfer() : transfer->transfer();
}

void RegisterTransferKernels(KernelTable& table, DeviceType device) {
  table.Register({.op = "SendStart",
                  .device = device,
                  .provider = "own",
                  .make = [device](const KernelSpec& spec) {
                    return MakeSendStart(spec, device);
                  }});
  Add<TransferKernel>(table, device, "SendWait", Call::kSendWait);
  Add<TransferKernel>(table, device, "RecvStart", Call::kRecvStart);
  Add<TransferKernel>(table, device, "RecvWait", Call::kRecvWait);
  if (device != DeviceType::kCpu) return;
  Add<CountedReceive>(table, device, "RecvRowsStart", Call::kRecvStart);
  Add<CountedReceive>(table, device, "RecvRowsWait", Call::kRecvWait);
}

}  // namespace sluice
