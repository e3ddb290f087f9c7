// A rendezvous that counts what is sent.
#ifndef SLUICE_TESTS_SUPPORT_COUNTING_RENDEZVOUS_H_
#define SLUICE_TESTS_SUPPORT_COUNTING_RENDEZVOUS_H_

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "engine/runtime/rendezvous.h"
#include "engine/thread_annotations.h"
#include "tests/support/forwarding_exchange.h"

namespace sluice::testing {

// Passes everything on to another, which does the work.
class CountingRendezvous final : public Rendezvous {
 public:
  explicit CountingRendezvous(std::shared_ptr<Rendezvous> to)
      : to_(std::move(to)) {}

  // Of tensors, since the last call.
  int64_t TakeBytes() { return bytes_.exchange(0); }

  bool tells() const override { return to_->tells(); }
  void AddDevices(std::span<const OwnMemory> devices) override {
    to_->AddDevices(devices);
  }
  void RemoveDevices(std::span<const OwnMemory> devices) override {
    to_->RemoveDevices(devices);
  }
  RunKey NewRun() override { return to_->NewRun(); }
  Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                         TimePoint deadline) override {
    SLUICE_ASSIGN_OR_RETURN(Exchange* const exchange,
                            to_->Join(run, edges, parts, deadline));
    MutexLock lock(mutex_);
    std::unique_ptr<Face>& face = faces_[exchange];
    if (face == nullptr) face = std::make_unique<Face>(*this, *exchange);
    return face.get();
  }
  void Leave(const RunKey& run) override { to_->Leave(run); }
  void Abort(const RunKey& run, const Status& status) override {
    to_->Abort(run, status);
  }
  void BeginEpoch(uint64_t epoch) override { to_->BeginEpoch(epoch); }

 private:
  struct Face final : ForwardingExchange {
    CountingRendezvous& owner;

    Face(CountingRendezvous& o, Exchange& to)
        : ForwardingExchange(to), owner(o) {}
    Status StartSend(const Edge& edge, const DeviceView& from) override {
      owner.bytes_ += static_cast<int64_t>(edge.bytes);
      return ForwardingExchange::StartSend(edge, from);
    }
  };

  const std::shared_ptr<Rendezvous> to_;
  std::atomic<int64_t> bytes_{0};
  Mutex mutex_;
  std::map<Exchange*, std::unique_ptr<Face>> faces_ GUARDED_BY(mutex_);
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_COUNTING_RENDEZVOUS_H_
