// A process's connections to its neighbours in the ring of a job and, for
// errors, to its coordinator.
//
// Two to each neighbour: one carries the collectives, always from a rank to the
// next, and one their pulses (pulse.h). What the first carries may go through
// memory in its place (sharing.h). Where a process fails, what the first holds
// may be any part of anything: why is heard from the coordinator
// (membership.h).
#ifndef SLUICE_DIST_COLLECTIVE_LINKS_H_
#define SLUICE_DIST_COLLECTIVE_LINKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/collective/membership.h"
#include "dist/collective/rank_name.h"
#include "dist/net/exchange.h"
#include "dist/net/frame.h"
#include "dist/net/shared_ring.h"
#include "dist/net/shared_stream.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

struct Links {
  Socket next, previous;  // data, to and from
  Socket next_pulse, previous_pulse;
  // Where there is one, data goes through it, and the socket is its bells'.
  std::unique_ptr<SharedRing> to_next, from_previous;
  bool spins = false;  // may a core be kept busy for a short wait?
  std::unique_ptr<Coordinator> coordinator;  // rank 0's
  std::unique_ptr<Membership> membership;    // null while the ring is formed
  uint32_t epoch = 0;                        // of the membership
  std::string address;  // this process's, as the others of the job reach it

  // Sends to the next and receives from the one before, at once. Each part that
  // comes is copied to its place in `in` or, where there is a `combine`, given
  // to it with that place: `in` as a whole, or in order in parts.
  Status Exchange(std::span<const Bytes> out, MutableBytes in,
                  const Combine& combine, Deadline deadline);

  // Tells the coordinator of this rank's error and closes all. Where it is only
  // that a neighbour has closed or is silent, what the coordinator decides
  // becomes this rank's error. Returns the error.
  Status Fail(int rank, int size, Status error);
  // Tells the coordinator of an error of this rank's own, and closes all.
  void Leave(const Status& error);

 private:
  Spin spin_;
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
