#include "engine/runtime/captured_exchange.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// The receiver's: what it copies of feeds comes before this work or after it.
constexpr auto kCopies = Accelerator::kCopyIn;

}  // namespace

Status CapturedExchange::Open(const std::vector<Pair>& edges) {
  for (const Pair& pair : edges) {
    Copy& copy = copies_[pair.edge];
    copy.from.accelerator = pair.sender;
    copy.into.accelerator = pair.receiver;
    SLUICE_RETURN_IF_ERROR(pair.sender->Use());
    SLUICE_ASSIGN_OR_RETURN(copy.produced, pair.sender->MakeEvent());
    SLUICE_RETURN_IF_ERROR(pair.receiver->Use());
    SLUICE_ASSIGN_OR_RETURN(copy.free, pair.receiver->MakeEvent());
    SLUICE_ASSIGN_OR_RETURN(copy.done, pair.receiver->MakeEvent());
  }
  return {};
}

Status CapturedExchange::StartSend(const Edge& edge, const DeviceView& from) {
  SLUICE_ASSIGN_OR_RETURN(Copy * copy, Find(edge));
  copy->from.data = from.data;
  copy->sent = true;
  SLUICE_RETURN_IF_ERROR(
      from.accelerator->Record(copy->produced, Accelerator::kCompute));
  if (!copy->wanted) return {};
  SLUICE_RETURN_IF_ERROR(AddCopy(*copy));
  return from.accelerator->Use();
}

Status CapturedExchange::StartReceive(const Edge& edge,
                                      const DeviceView& into) {
  SLUICE_ASSIGN_OR_RETURN(Copy * copy, Find(edge));
  copy->into.data = into.data;
  copy->wanted = true;
  SLUICE_RETURN_IF_ERROR(
      into.accelerator->Record(copy->free, Accelerator::kCompute));
  return copy->sent ? AddCopy(*copy) : Status();
}

// Both have started.
Status CapturedExchange::AddCopy(Copy& copy) {
  Accelerator& receiver = *copy.into.accelerator;
  SLUICE_RETURN_IF_ERROR(receiver.Use());
  SLUICE_RETURN_IF_ERROR(receiver.Wait(copy.produced, kCopies));
  SLUICE_RETURN_IF_ERROR(receiver.Wait(copy.free, kCopies));
  if (copy.bytes > 0) {
    SLUICE_RETURN_IF_ERROR(receiver.CopyFrom(*copy.from.accelerator, kCopies,
                                             copy.into.data, copy.from.data,
                                             copy.bytes));
  }
  return receiver.Record(copy.done, kCopies);
}

Status CapturedExchange::WaitSent(const Edge& edge, const DeviceView& from) {
  SLUICE_ASSIGN_OR_RETURN(Copy * copy, Find(edge));
  if (!copy->wanted) {
    return Internal(fmt::format("'{}' has not been received", edge.name));
  }
  return from.accelerator->Wait(copy->done, Accelerator::kCompute);
}

Status CapturedExchange::WaitReceived(const Edge& edge,
                                      const DeviceView& into) {
  SLUICE_ASSIGN_OR_RETURN(Copy * copy, Find(edge));
  if (!copy->sent) {
    return Internal(fmt::format("'{}' has not been sent", edge.name));
  }
  return into.accelerator->Wait(copy->done, Accelerator::kCompute);
}

auto CapturedExchange::Find(const Edge& edge) -> Result<Copy*> {
  const auto found = copies_.find(edge.number);
  if (found == copies_.end()) {
    return Internal(
        fmt::format("'{}': there is no edge {} here", edge.name, edge.number));
  }
  Copy& copy = found->second;
  const bool second = copy.sent || copy.wanted;
  if (second && copy.bytes != edge.bytes) {
    return DataLoss(fmt::format("'{}': {} bytes at one end, {} at the other",
                                edge.name, copy.bytes, edge.bytes));
  }
  copy.bytes = edge.bytes;
  return &copy;
}

}  // namespace sluice
