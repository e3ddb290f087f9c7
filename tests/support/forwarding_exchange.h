// A face of an exchange: what a test double does not change.
#ifndef SLUICE_TESTS_SUPPORT_FORWARDING_EXCHANGE_H_
#define SLUICE_TESTS_SUPPORT_FORWARDING_EXCHANGE_H_

#include <cstddef>

#include "engine/runtime/rendezvous.h"

namespace sluice::testing {

// Passes everything on to another, which must outlive it.
class ForwardingExchange : public Exchange {
 public:
  explicit ForwardingExchange(Exchange& to) : to_(to) {}

  Status StartSend(const Edge& edge, const DeviceView& from) override {
    return to_.StartSend(edge, from);
  }
  Status WaitSent(const Edge& edge, const DeviceView& from) override {
    return to_.WaitSent(edge, from);
  }
  Status StartReceive(const Edge& edge, const DeviceView& into) override {
    return to_.StartReceive(edge, into);
  }
  Status WaitReceived(const Edge& edge, const DeviceView& into) override {
    return to_.WaitReceived(edge, into);
  }
  size_t ReceivedBytes(const Edge& edge) override {
    return to_.ReceivedBytes(edge);
  }
  bool Sent(const Edge& edge, Waker& waker) override {
    return to_.Sent(edge, waker);
  }
  bool Received(const Edge& edge, Waker& waker) override {
    return to_.Received(edge, waker);
  }

 private:
  Exchange& to_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_FORWARDING_EXCHANGE_H_
