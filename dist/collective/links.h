// A process's connections to others of a job, its neighbours in the ring and
// its partners (algorithms.h), and, for errors, to the job's coordinator.
//
// There are two connections from a rank to another: one carries the
// collectives, always that way, and one the pulses of both (pulse.h).
// Collectives may go through shared memory in place of the first (sharing.h).
// Where a process fails, the first may hold any part of anything: the reason is
// heard from the coordinator (membership.h).
#ifndef SLUICE_DIST_COLLECTIVE_LINKS_H_
#define SLUICE_DIST_COLLECTIVE_LINKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/collective/algorithms.h"
#include "dist/membership/membership.h"
#include "dist/membership/rank_name.h"
#include "dist/net/exchange.h"
#include "dist/net/frame.h"
#include "dist/net/shared_ring.h"
#include "dist/net/shared_stream.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// One way, from a rank to another. Where there is a ring of shared memory, data
// goes through it, and the data socket carries only its bells.
struct Wire {
  Socket data, pulse;
  std::unique_ptr<SharedRing> ring;
  int64_t bytes = 0;  // sent
};

// The wires both ways between this process and one other.
struct WirePair {
  Wire to, from;
};

struct Links {
  // The wires to and from each rank, by rank. Those that are not needed are not
  // connected.
  std::vector<Wire> to, from;
  Plan plan;
  bool spins = false;  // may a core be kept busy for a short wait?
  std::unique_ptr<Coordinator> coordinator;  // rank 0's
  std::unique_ptr<Membership> membership;    // null while the ring is formed
  uint32_t epoch = 0;                        // of the membership
  std::string address;  // this process's, as the others of the job reach it

  // Sends to one rank and receives from another, or the same, at once. Each
  // part that comes is copied to its place in `in` or, where there is a
  // `combine`, given to it with that place: `in` as a whole, or in order in
  // parts. Where there is nothing to send or receive the rank may be any.
  Status Exchange(int to_rank, std::span<const Bytes> out, int from_rank,
                  MutableBytes in, const Combine& combine, Deadline deadline);
  // The pulse sockets of all wires that are connected.
  std::vector<const Socket*> Pulses() const;

  // When the membership's end is decided, the data's sockets that there are now
  // are shut down: who waits for one does no more. Requires a membership.
  void CutThen();

  // Tells the coordinator of this rank's error and closes all. Where it is only
  // that a neighbour has closed or is silent, what the coordinator decides
  // becomes this rank's error. Returns the error.
  Status Fail(Status error);
  // Tells the coordinator of an error of this rank's own, and closes all.
  void Leave(const Status& error);

 private:
  // The rank that an error is about: the first that it names, or -1.
  int Blamed(const Status& error) const;

  Spin spin_, streams_spin_;
  std::vector<std::byte> arriving_;  // by the socket, to be taken
};

// A text behind a frame of a kind and count; it is cut at 2 KiB.
Status SendText(FrameKind kind, uint64_t count, std::string_view text, int rank,
                Socket& to, Deadline deadline);
Result<Frame> ReceiveHeader(Socket& from, Deadline deadline);
// The text behind a frame of at most 2 KiB; kDataLoss where it is longer.
Result<std::string> ReceiveText(const Frame& frame, Socket& from,
                                Deadline deadline);

// An error as a frame and back.
Status SendError(Socket& to, int rank, const Status& error, Deadline deadline);
// What the peer says has gone wrong; `frame` is the header that came before. A
// frame that is no error, or that makes no sense, is one of kDataLoss.
Status ReceiveErrorBehind(const Frame& frame, Socket& from, Deadline deadline);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_LINKS_H_
