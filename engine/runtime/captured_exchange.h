// Sends and receives between accelerators while their work is recorded as one.
#ifndef SLUICE_ENGINE_RUNTIME_CAPTURED_EXCHANGE_H_
#define SLUICE_ENGINE_RUNTIME_CAPTURED_EXCHANGE_H_

#include <map>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/status.h"

namespace sluice {

// A copy from where the sender has it to where the receiver wants it, beside
// what both compute meanwhile: behind both starts, before both waits. Starts
// and waits are recorded in an order in which no wait comes before one of its
// edge's starts; so no event is awaited before it is recorded. For one thread
// and one capture (Accelerator::kTogether).
class CapturedExchange final : public Exchange {
 public:
  // Makes the events that these edges need, which cannot be made while work is
  // recorded. The senders and receivers must outlive this.
  struct Pair {
    int edge = 0;
    Accelerator* sender = nullptr;
    Accelerator* receiver = nullptr;
  };
  Status Open(const std::vector<Pair>& edges);

  Status StartSend(const Edge& edge, const DeviceView& from) override;
  Status WaitSent(const Edge& edge, const DeviceView& from) override;
  Status StartReceive(const Edge& edge, const DeviceView& into) override;
  Status WaitReceived(const Edge& edge, const DeviceView& into) override;

 private:
  struct Copy {
    DeviceView from, into;  // data is set by the starts
    bool sent = false, wanted = false;
    size_t bytes = 0;
    Accelerator::Event produced, free, done;
  };
  Result<Copy*> Find(const Edge& edge);
  static Status AddCopy(Copy& copy);

  std::map<int, Copy> copies_;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_CAPTURED_EXCHANGE_H_
