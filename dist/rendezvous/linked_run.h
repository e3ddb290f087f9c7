// One run of a step with parts in several tasks, as one of them sees it; for
// dist/rendezvous/linked_rendezvous.cc alone.
#ifndef SLUICE_DIST_RENDEZVOUS_LINKED_RUN_H_
#define SLUICE_DIST_RENDEZVOUS_LINKED_RUN_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/rendezvous/link.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "engine/runtime/busy_clock.h"
#include "engine/runtime/rendezvous.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// The node in the name of a step's edge, which ends with it
// (graph/passes/partition.cc).
std::string_view NodeOf(std::string_view edge_name);

// Locks: its own, then a link's.
class LinkedRendezvous::Run final : public sluice::Exchange,
                                    public std::enable_shared_from_this<Run> {
 public:
  Run(LinkedRendezvous& owner, const RunKey& key)
      : owner_(owner), key_(key), early_wants_(owner.early_wants_) {}
  ~Run() override { ForgetEarly(); }

  Status StartSend(const Edge& edge, const DeviceView& from) override;
  Status WaitSent(const Edge& edge, const DeviceView& from) override;
  Status StartReceive(const Edge& edge, const DeviceView& into) override;
  Status WaitReceived(const Edge& edge, const DeviceView& into) override;
  size_t ReceivedBytes(const Edge& edge) override;
  bool Sent(const Edge& edge, Waker& waker) override;
  bool Received(const Edge& edge, Waker& waker) override;

  const RunKey& key() const { return key_; }
  // Called by each part of this task; an error where they speak of different
  // steps.
  Status Join(int edges, int parts, TimePoint deadline);
  void Leave();
  // Whether all parts have left and nothing is still to be sent.
  bool over() const;
  bool begun() const;  // a part has joined, or a task is needed
  // As LinkedRendezvous::Needs.
  Status Needs(const std::shared_ptr<Link>& link);
  void Release();
  bool Uses(const Link& link) const;
  Status Wanted(Link& link, const Frame& frame);
  Status Arrive(Link& link, const Frame& frame);
  // Aborts the run; false if it was aborted before.
  bool Abort(const Status& status, const Link* origin);
  // The line for StallNotes, if one is due. `now`: for how long the process has
  // run.
  std::optional<std::string> Stall(TimePoint::duration now);

 private:
  enum class Sending : uint8_t {
    kNot,
    kCopying,   // from an accelerator, to `staged`
    kOffered,   // there is something to be sent, at `view`
    kBuffered,  // the same, in `buffer` or `staged`
    kGiven,     // to the link
  };
  struct Slot {
    // The sender's.
    Sending sending = Sending::kNot;
    std::shared_ptr<Link> wanted_by;
    uint64_t wanted_of = 0;  // the sender's incarnation
    int wanted_as = 0;       // MarkOf the receiver's edge
    std::shared_ptr<Link> to;
    Bytes view;
    std::vector<std::byte> buffer;
    Link::Parcel parcel;
    // Pinned memory on the way from or to an accelerator. Kept while the run
    // has parts.
    DeviceTransfers::BlockPtr staged;
    // The receiver's.
    MutableBytes into;  // of an edge of which some may come, what has, at last
    const Link* from = nullptr;
    uint64_t sender = 0;
    bool some = false;
    bool expects = false;
    bool landing = false;  // the link writes to `into` right now
    bool arrived = false;
    Status error;  // of what arrived
    Waker* waker = nullptr;
  };
  class SlotLanding;
  // A receive, or a send, that waits for another task.
  struct Wait {
    int edge;
    std::string name;
    const Link* link;
    bool sends;
    // When it was first seen to wait, in the time of Stall.
    std::optional<TimePoint::duration> since = std::nullopt;
  };

  Status WantedEarly(Link& link, const Frame& frame) REQUIRES(mutex_);
  void ForgetEarly() REQUIRES(mutex_);
  Slot* SlotOf(uint64_t number) REQUIRES(mutex_);
  Result<Slot*> SlotOf(const Edge& edge) REQUIRES(mutex_);
  Frame FrameFor(FrameKind kind, const Edge& edge) const;
  // The error for a peer that has cut another step than this task. The peer is
  // told.
  Status Different(Link& peer, const std::string& how) REQUIRES(mutex_);
  // Gives the slot's tensor to the link: both sides are ready. An error where
  // they do not fit.
  Status Give(Slot& slot, const Edge& edge) REQUIRES(mutex_);
  void Wake(Slot& slot) REQUIRES(mutex_);
  bool Settled(const Slot& slot) const REQUIRES(mutex_);
  Status Use(const std::shared_ptr<Link>& link) REQUIRES(mutex_);
  // Tells the link's task of the abort, in the words of `text`.
  void Tell(Link& link, const Status& abort, const std::string& text) const;
  // A place in pinned memory where the view is an accelerator's, else null.
  Result<DeviceTransfers::BlockPtr> Stage(const Edge& edge,
                                          const DeviceView& view);
  Status CopyOut(const Edge& edge, const DeviceView& from,
                 const DeviceTransfers::BlockPtr& staged);
  Status CopyIn(const Edge& edge, const DeviceView& into);
  void Copied(const Edge& edge, const Status& status) EXCLUDES(mutex_);
  Status AwaitArrival(const Edge& edge) EXCLUDES(mutex_);
  void BeginWait(const Edge& edge, const Link& link, bool sends)
      REQUIRES(mutex_);
  void EndWait(const Edge& edge) REQUIRES(mutex_);
  bool PastDeadline() const;
  bool IsLocal(const Edge& edge);

  LinkedRendezvous& owner_;
  const RunKey key_;
  const std::shared_ptr<std::atomic<size_t>> early_wants_;  // the owner's
  std::atomic<bool> aborted_{false};
  TimePoint deadline_ = TimePoint::max();  // fixed by the first to join
  sluice::Exchange* local_ = nullptr;  // of several parts here; theirs alone

  mutable Mutex mutex_;
  CondVar changed_;
  int edges_ GUARDED_BY(mutex_) = 0;
  int parts_ GUARDED_BY(mutex_) = 0;
  int joined_ GUARDED_BY(mutex_) = 0;
  int left_ GUARDED_BY(mutex_) = 0;
  bool needed_ GUARDED_BY(mutex_) = false;
  bool was_needed_ GUARDED_BY(mutex_) = false;
  // Slots do not move; a part that has joined may use its own.
  std::unique_ptr<Slot[]> slots_ GUARDED_BY(mutex_);
  std::vector<Edge> sends_ GUARDED_BY(mutex_);
  struct Want {
    std::shared_ptr<Link> by;
    uint64_t of;
    int as;
  };
  std::map<uint64_t, Want> early_ GUARDED_BY(mutex_);  // before the first
  std::vector<std::shared_ptr<Link>> used_ GUARDED_BY(mutex_);
  // The waits under way, the oldest first: at most one of each part, whose
  // instructions are in order.
  std::vector<Wait> waits_ GUARDED_BY(mutex_);
  std::optional<BusyClock::Work> waiting_ GUARDED_BY(mutex_);  // while any does
  TimePoint::duration next_line_ GUARDED_BY(mutex_){0};
  Status status_ GUARDED_BY(mutex_);     // of the abort
  std::string said_ GUARDED_BY(mutex_);  // what others are told of it
  // By whose word; only compared, since it may be gone.
  const Link* origin_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_RENDEZVOUS_LINKED_RUN_H_
