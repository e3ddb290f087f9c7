// The processes of a job, connected, and what they do together.
#ifndef SLUICE_DIST_COLLECTIVE_GROUP_H_
#define SLUICE_DIST_COLLECTIVE_GROUP_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/collective/call_queue.h"
#include "dist/collective/links.h"
#include "dist/collective/options.h"
#include "dist/launch_info.h"
#include "dist/membership/pulse.h"
#include "dist/membership/roster_member.h"
#include "dist/net/descriptor.h"
#include "dist/net/frame.h"
#include "dist/net/socket.h"
#include "engine/dtype.h"
#include "engine/runtime/collective.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// One process's membership in its job.
//
// Where the processes' collectives differ, every process gets
// kFailedPrecondition that names both sides.
// Where a process ends or is silent, every other gets kUnavailable or
// kDeadlineExceeded that names it. Any error breaks the group: the connections
// are closed, so that the others learn of it at once, data is unspecified, and
// every later call returns the first error. Arguments that are wrong on their
// own (a dtype that cannot be added, a count below 0) break it too: the others
// wait for this process.
//
// One thread at a time. The bits of a result are the same on every process and
// a function of the inputs, the number of processes and, of an all-reduce, its
// way (algorithms.h), which with several hosts is also that of who is on which.
class Group final : public Collective {
 public:
  // Returns when all have come. Takes info.listen_fd. Errors say who is
  // missing: "rank 0 of 4 waits for ranks 2, 3".
  static Result<std::unique_ptr<Group>> Join(const LaunchInfo& info,
                                             const GroupOptions& options);
  // A group of one, without connections.
  static std::unique_ptr<Group> Alone();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // How many hosts its processes are on.
  int hosts() const {
    return std::max(1, static_cast<int>(links_.plan.leaders().size()));
  }
  // This process's address, as the others reach it.
  const std::string& address() const { return links_.address; }

  // Runs as a ring (Patarasuk and Yuan, 2009), by halving and doubling (Thakur,
  // Rabenseifner and Gropp, 2005) or over hosts, as GroupOptions::all_reduce
  // and its size say. Half types are added in float32 and rounded after each
  // addition; their mean is that of inputs divided first, since the sum may be
  // beyond their range. Integers have a sum only; it wraps.
  Status AllReduce(std::string_view name, DType dtype, void* data,
                   int64_t count, Reduction how) override;
  Status AllReduce(std::string_view name, Tensor* tensor, Reduction how);
  // Starts a collective. Every other call first finishes what was started.
  Status Start(const CollectiveCall& call) override;
  Status Wait(const void* data) override;
  bool IsOver(const void* data, Waker& waker) override;
  // The sums go along the ranks, the result then round the ring (tree.cc).
  Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                 std::span<const void* const> sums, void* result,
                 int64_t count) override;
  // This rank's own rows are Part(rows, size(), rank()) of pieces.h. With rows
  // of 1 the bits are those of an all-reduce as a ring.
  Status ReduceScatter(std::string_view name, DType dtype, void* data,
                       int64_t count, int64_t row, Reduction how) override;
  Status Broadcast(std::string_view name, void* data, int64_t bytes,
                   int root) override;
  Status AllGather(std::string_view name, const void* mine, int64_t each,
                   void* all) override;
  // All bytes go along the ring, past ranks that they are not for: a rank sends
  // n (n - 1) / 2 times `each`, n / 2 times what direct connections would take.
  Status AllToAll(std::string_view name, const void* mine, int64_t each,
                  void* all) override;
  Status Barrier(std::string_view name) override;
  // Makes the ranks that give one `color` a group of their own, in the order of
  // their keys and, where these are equal, of their ranks; a rank that gives a
  // colour below 0 is in none. All ranks call it together, with one name, by
  // which Subgroup returns the new group from then on. The new group has
  // connections and an order of its own: another thread may use it at the same
  // time as this one. An error in it, which says whose group it is, does not
  // break this one; an error of Split itself does.
  Status Split(std::string_view name, int color, int key = 0);
  Group* Subgroup(std::string_view name) override;
  // For a process without further data: takes part in the others' all-reduces
  // with zeros, of which it learns as they come, until all processes follow. A
  // mean is still one over size() processes. Returns the rank that came last:
  // of those with the most collectives behind them, the highest; the same for
  // all, who go on together. Any other collective of a process that does not
  // yet follow is kFailedPrecondition. How it ends: join.cc.
  Result<int> Follow();
  Status Check() override;
  double seconds() const override { return queue_.seconds(); }

  // Leaves the group: the others' calls fail with "rank 1 of 4 failed:
  // <message>". Does nothing in a group of one. Leaves its subgroups, too.
  void Leave(const Status& failure) override;
  // Only for a process that joined with GroupOptions::may_join_again, or is of
  // an elastic job, and that has no subgroups.
  Status JoinAgain(int64_t done) override;
  bool elastic() const override { return roster_ != nullptr; }
  bool called() const override { return elastic() && roster_->called(); }

  // Bytes that this rank's collectives have sent so far, headers included.
  int64_t bytes_sent() const { return bytes_sent_; }
  // Bytes sent to one rank since the group was joined; 0 once it is broken.
  int64_t bytes_sent_to(int rank) const {
    const auto i = static_cast<size_t>(rank);
    return i < links_.to.size() ? links_.to[i].bytes : 0;
  }
  // Of this rank's two neighbours, how many it shares memory with for data: to
  // the next, and from the one before.
  int shared_links() const {
    if (size_ == 1) return 0;
    return (links_.to[AtNext()].ring != nullptr) +
           (links_.from[AtPrevious()].ring != nullptr);
  }
  // The error that broke the group, or ok.
  const Status& status() const { return broken_; }

 private:
  static const Combine kPut;  // where it belongs, no more
  // Ranks each of which sends to the next, and the last to the first.
  struct Circle {
    int place, size;  // this rank's, and how many there are
    int next, previous;
  };
  // A cut of the data into chunks, one a process, and of those into pieces.
  class Cut;
  // What goes along the ranks to be added in a tree's order.
  class Chain;
  // What moves through the ring, piece by piece.
  struct Flow {
    int64_t pieces = 0;
    // Piece i may be sent when this one has arrived; below 0: at any time.
    std::function<int64_t(int64_t)> needs;
    std::function<Bytes(int64_t)> out;
    std::function<MutableBytes(int64_t)> in;
    // What is done with piece i on arrival; by default it is put into its
    // place.
    std::function<const Combine&(int64_t)> combine =
        [](int64_t) -> const Combine& { return kPut; };
  };

  // What is known of the ranks that follow (Follow), along a run of ranks up to
  // one of them.
  struct Following {
    int count = 0;
    // The last that came: when, in collectives, and who.
    uint64_t run = 0;
    int rank = 0;
  };

  Group(const LaunchInfo& info, const GroupOptions& options, Links links);

  // Runs a collective's body, unless the group is broken or of one.
  template <typename Body>
  Status Collective(Frame frame, std::string_view signature, Body body);
  // All of a call: an error of its body breaks the group.
  template <typename Body>
  Status Attempt(std::string_view operation, std::string_view name, Body body);
  Status Break(std::string_view operation, std::string_view name, Status error);
  // `apart`: see FormRing.
  static Result<std::unique_ptr<Group>> Join(const LaunchInfo& info,
                                             const GroupOptions& options,
                                             int apart);
  // Joins an elastic job (elastic.cc).
  static Result<std::unique_ptr<Group>> JoinElastic(
      const LaunchInfo& info, const GroupOptions& options);
  Status JoinOthers(int64_t done);
  // Starts anew with these links.
  Status Begin(Links links);
  // The error with the name of the subgroup that it comes from, if any.
  Status Known(Status error) const {
    return whose_.empty() || error.ok() ? error : error.WithContext(whose_);
  }
  // The subgroup; null where this rank is in none.
  Result<std::unique_ptr<Group>> FormPart(std::string_view name, int color,
                                          int key);

  size_t AtNext() const { return static_cast<size_t>(ring().next); }
  size_t AtPrevious() const { return static_cast<size_t>(ring().previous); }
  Circle ring() const {
    return {rank_, size_, (rank_ + 1) % size_, (rank_ + size_ - 1) % size_};
  }

  // One round: sends the header, and `first` behind it, to the next; receives
  // the header of the one before, and checks that it is the same collective.
  Status Greet(Bytes first = {});
  // Greets as above, but sends `out`, whatever that is.
  Status HearHeader(std::span<const Bytes> out);
  // Greets, and also sends the header to the partners `to` and hears those of
  // `from`.
  Status GreetThem(std::span<const int> to, std::span<const int> from);
  // A header that came from a rank that is no neighbour.
  Status CheckHeader(std::span<const std::byte, kFrameBytes> header) const;
  // Sends, and receives the next header.
  Result<Frame> Hear(std::span<const Bytes> out);
  // As many rounds as it takes until every process has greeted.
  Status GreetAll();
  Status Move(std::span<const Bytes> out, MutableBytes in,
              const Combine& combine = kPut);
  // Sends `out` to one rank and receives `in` from another, at once.
  Status Trade(int to, std::span<const Bytes> out, int from, MutableBytes in,
               const Combine& combine = kPut);
  // Moves all of a flow, of which `sent` pieces went with the header.
  Status MoveAround(const Circle& circle, const Flow& flow, int64_t sent);
  // Whether started collectives run on the queue's thread.
  bool Beside() const;
  Status ReduceRows(FrameKind kind, std::string_view name, DType dtype,
                    void* data, int64_t count, int64_t row, Reduction how);
  Status Reduce(DType dtype, std::byte* data, int64_t rows, int64_t row,
                bool mean, bool scattered);
  // Sums what all ranks of a circle have, and divides the sum at last.
  // `scattered`: only this rank's rows become whole. `greets`: who is next has
  // no header yet.
  Status ReduceAround(const Circle& circle, DType dtype, std::byte* data,
                      int64_t rows, int64_t row, int divisor, bool scattered,
                      bool greets);
  // The other ways of an all-reduce (halving.cc, hierarchy.cc).
  Status ReduceByDoubling(DType dtype, std::byte* data, int64_t count,
                          int divisor);
  Status ReduceByHalving(DType dtype, std::byte* data, int64_t count,
                         int divisor);
  Status ReduceOverHosts(DType dtype, std::byte* data, int64_t count,
                         int divisor);
  // Exchanges ranges of elements with a partner, both ways at once, by pieces.
  Status Swap(int partner, MutableBytes out, MutableBytes in,
              int64_t element_bytes, const Combine& combine = kPut);
  // Receives all of the data from one rank and sends it to another, piece by
  // piece; a rank below 0: none.
  Status PassOn(int from, int to, MutableBytes data, int64_t element_bytes,
                const Combine& combine = kPut);
  Status AddTree(DType dtype, int64_t leaves, std::span<const void* const> sums,
                 void* whole, int64_t count);
  Status Gather(int64_t each, std::byte* all);
  Status Spread(std::byte* data, int64_t bytes, int root);
  Status Deal(const std::byte* mine, int64_t each, std::byte* all);
  // Takes the previous rank's word on who follows: at most `most` ranks.
  Status NoteJoined(const Frame& frame, int most);
  Status SayJoined(const Following& following);
  Status GiveZeros(const Frame& frame);
  Result<int> FollowToEnd();

  const LaunchInfo info_;  // its listener is for JoinAgain; or none
  const GroupOptions options_;
  const Descriptor listener_;             // info_'s
  std::unique_ptr<RosterMember> roster_;  // of an elastic job, else null
  int rank_, size_, local_rank_, local_size_;
  const int cores_;    // this process's part of the host's
  std::string whose_;  // of a part, for errors: its name and the job's ranks
  const std::chrono::milliseconds peer_timeout_;
  const Overlap overlap_;
  Links links_;
  std::optional<Pulse> pulse_;  // while the links are open
  Status broken_;
  uint64_t run_ = 0;      // collectives begun
  Frame frame_;           // of the one under way
  bool greeted_ = false;  // by the one before, for the one to come
  Following before_;      // up to the one before, as it has said
  int64_t bytes_sent_ = 0;
  // Has all of the above to itself while there is something in it.
  CallQueue queue_;
  std::vector<std::pair<std::string, std::unique_ptr<Group>>> parts_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_COLLECTIVE_GROUP_H_
