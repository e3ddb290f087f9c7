// The one connection between two tasks of a cluster: frames both ways, each way
// by a stream or a ring of memory of its own.
#ifndef SLUICE_DIST_RENDEZVOUS_LINK_H_
#define SLUICE_DIST_RENDEZVOUS_LINK_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "dist/collective/links.h"
#include "dist/net/exchange.h"
#include "dist/net/frame.h"
#include "dist/net/shared_stream.h"
#include "dist/net/stream.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// The place that a payload is received into, as long as it has an owner.
class Landing {
 public:
  // The place for all of the payload, which stays until Let; empty: it is gone,
  // and what arrives is dropped. To be held for moments only.
  virtual MutableBytes Hold() = 0;
  virtual void Let() = 0;

 protected:
  ~Landing() = default;
};

// Thread-safe but for what is the owner's Take. What is sent leaves in order,
// by the thread that sends it as far as it fits the system's buffers, the rest
// by a thread of the link: nothing but the memory that it is in waits for a
// slow peer, and of that no more than there are bounds for: a peer that does
// not read what answers it is not heard until it does, and one that leaves too
// much else unread is gone. Owned by a shared pointer. A peer that sends
// nothing for the peer timeout, not even the pings that links send four times a
// second, or that closes, ends the link.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // Called by the link's thread, without locks.
  class Owner {
   public:
    // A frame has come; its payload, if any, must be taken whole with Receive,
    // or be dropped. An error ends the link.
    virtual Status Take(Link& link, const Frame& frame) = 0;
    // The last call: nothing comes any more. `why` names the peer.
    virtual void Ended(Link& link, const Status& why) = 0;
    // Called several times a second until the end, by another thread than the
    // calls above and at the same time.
    virtual void Beat(Link&) {}

   protected:
    ~Owner() = default;
  };

  // A payload in its sender's memory. Used for one Send at a time.
  class Parcel {
   private:
    friend class Link;
    bool under_way_ = false;  // under the link's mutex
    Waker* waker_ = nullptr;
  };

  // `wires`: `next` to the peer, `previous` from it, with their rings where
  // there are such. Both ends begin with Start. `owner` must outlive it.
  Link(WirePair wires, std::string peer, std::chrono::milliseconds peer_timeout,
       Owner& owner);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();
  // kResourceExhausted where there are no threads for it: it has ended then,
  // and the owner was not called. The owner's functions may wait for a lock
  // that is held around this call.
  Status Start() EXCLUDES(mutex_);
  // Ends the link without telling the owner, which is not called any more when
  // this returns, and may go. Not to be called by the link's thread.
  void Stop() EXCLUDES(mutex_);

  const std::string& peer() const { return peer_; }
  // The peer's address; empty: one of the loopback, or not known.
  const std::string& host() const { return host_; }
  bool shared() const { return wires_.to.ring != nullptr; }
  // The error that ended the link, or ok.
  Status status() const EXCLUDES(mutex_);
  // Ends the link: both owners are told. Any thread.
  void End(const Status& why) EXCLUDES(mutex_);

  // Queues a frame. After the end the calls that send do nothing: the owner is
  // told anyway.
  void Post(const Frame& frame, std::vector<std::byte> payload = {})
      EXCLUDES(mutex_);
  // The payload is `keeper`'s, which is kept until it has left.
  void Post(const Frame& frame, Bytes payload,
            std::shared_ptr<const void> keeper) EXCLUDES(mutex_);
  // Posts a call's frame; waits first while many calls' bytes wait to leave.
  void PostCall(const Frame& frame, std::vector<std::byte> payload)
      EXCLUDES(mutex_);
  void Send(const Frame& frame, Bytes payload, Parcel& parcel) EXCLUDES(mutex_);
  // Whether the parcel's bytes are its owner's again; if not, the waker is
  // woken when they are.
  bool Sent(Parcel& parcel, Waker& waker) EXCLUDES(mutex_);
  // Waits until the parcel is sent, `stop` is set (then Nudge) or the deadline.
  // On the latter two a parcel that has not begun to leave never does, and one
  // that has is copied; false. The bytes are the caller's again in any case.
  bool Settle(Parcel& parcel, const std::atomic<bool>& stop, Deadline deadline)
      EXCLUDES(mutex_);
  void Nudge() EXCLUDES(mutex_);
  // Drops an aborted run's frames that have not begun to leave.
  void Withdraw(uint32_t epoch, uint64_t run) EXCLUDES(mutex_);
  // Bytes waiting to leave that the link holds itself.
  size_t queued() const EXCLUDES(mutex_);

  // Receive or drop a payload; for the owner, in Take.
  Status Receive(MutableBytes bytes);
  Status Receive(size_t bytes, Landing& landing);
  Status Drop(size_t bytes);

 private:
  // The kinds of frames that wait to leave, by what happens where they become
  // many.
  enum class Account : uint8_t {
    kAnswers,  // the peer, who has asked for them, is not heard
    kCalls,    // the callers wait
    kTold,     // all else, which cannot wait: the link ends
  };
  static constexpr size_t kAccounts = 3;
  struct Job {
    Frame frame;
    std::array<std::byte, kFrameBytes> header;
    std::array<Bytes, 2> pieces;
    std::vector<std::byte> own;
    std::shared_ptr<const void> keeper;
    Parcel* parcel = nullptr;
    std::variant<std::monostate, StreamOutgoing, SharedOutgoing> way;
    Account account() const;
    // Bytes that count. Of tensors the frame's alone: there are as many as runs
    // under way have.
    size_t weight() const;
    Direction& direction() {
      if (auto* const stream = std::get_if<StreamOutgoing>(&way)) {
        return *stream;
      }
      return std::get<SharedOutgoing>(way);
    }
  };

  void Add(const Frame& frame, std::unique_ptr<Job> job) REQUIRES(mutex_);
  void Pump() REQUIRES(mutex_);
  void Finish(Parcel* parcel) REQUIRES(mutex_);
  // The job has left, or will not leave any more.
  void Forget(const Job& job) REQUIRES(mutex_);
  size_t& waiting(Account account) REQUIRES(mutex_) {
    return waiting_[static_cast<size_t>(account)];
  }
  Status AwaitAnswersTaken() EXCLUDES(mutex_);
  void Break(const Status& why) REQUIRES(mutex_);
  void Write() EXCLUDES(mutex_);
  bool AwaitBlocked(Deadline until) REQUIRES(mutex_);
  void WaitForRoom() EXCLUDES(mutex_);
  void Read() EXCLUDES(mutex_);
  Status ReadOne();
  bool RoomSoon();
  Status Await(Direction& in, Spin* spin = nullptr);

  WirePair wires_;
  const std::string peer_, host_;
  const std::chrono::milliseconds peer_timeout_;
  Owner& owner_;
  SharedLane out_lane_, in_lane_;
  // How to spin within a payload, at either end of the ring: a peer that is at
  // work fills or frees the next slot sooner than a thread is woken.
  Spin freed_, filled_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<Job>> jobs_ GUARDED_BY(mutex_);
  std::array<size_t, kAccounts> waiting_ GUARDED_BY(mutex_) = {};  // bytes
  bool blocked_ GUARDED_BY(mutex_) = false;  // no room for the first job
  Deadline taken_at_ GUARDED_BY(mutex_);     // when the peer last took anything
  Status broken_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  Deadline quiet_since_ GUARDED_BY(mutex_);

  std::thread writer_, reader_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_RENDEZVOUS_LINK_H_
