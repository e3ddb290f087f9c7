// A process's connections to its neighbours in the ring of a job, and how they
// tell each other of errors.
//
// Three to each neighbour: one carries the collectives, always from a rank to
// the next, one only errors, both ways, and one their pulses (pulse.h). Where a
// process fails, what the first holds may be any part of anything; on the
// second there is either the reason or, where the process died, nothing but the
// end. What the first carries may go through memory in its place (sharing.h).
#ifndef SLUICE_DIST_COLLECTIVE_LINKS_H_
#define SLUICE_DIST_COLLECTIVE_LINKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/net/exchange.h"
#include "dist/net/frame.h"
#include "dist/net/shared_ring.h"
#include "dist/net/shared_stream.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

struct Links {
  Socket next, previous;  // data, to and from
  Socket next_errors, previous_errors;
  Socket next_pulse, previous_pulse;
  // Where there is one, data goes through it, and the socket is its bells'.
  std::unique_ptr<SharedRing> to_next, from_previous;
  bool spins = false;  // may a core be kept busy for a short wait?

  // Sends to the next and receives from the one before, at once. Each part that
  // comes is copied to its place in `in` or, where there is a `combine`, given
  // to it with that place: `in` as a whole, or in order in parts.
  Status Exchange(std::span<const Bytes> out, MutableBytes in,
                  const Combine& combine, Deadline deadline);

  // Tells both neighbours of this rank's error and closes all. Where it is only
  // that a neighbour has closed or is silent, that one is asked first: its
  // reason, which may be yet another's, then becomes this rank's. Waits for it
  // for a second, or as long as that neighbour itself is still finding out.
  // Returns the error.
  Status Fail(int rank, int size, Status error);
  // Tells both neighbours of an error of this rank's own, and closes all.
  void Leave(int rank, const Status& error);

 private:
  Spin spin_;
  std::vector<std::byte> arriving_;  // by the socket, to be taken
};

// How a rank is named in messages, such that no name begins another's.
std::string RankName(int rank, int size);  // "rank 2 of 4"

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
