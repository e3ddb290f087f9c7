// A process's connections to its neighbours in the ring of a job, and how they
// tell each other of errors.
//
// Two to each neighbour: one carries the collectives, always from a rank to the
// next, and one only errors, both ways. Where a process fails, what the first
// holds may be any part of anything; on the second there is either the reason
// or, where the process died, nothing but the end.
#ifndef SLUICE_DIST_COLLECTIVE_LINKS_H_
#define SLUICE_DIST_COLLECTIVE_LINKS_H_

#include <string>

#include "dist/net/frame.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

struct Links {
  Socket next, previous;  // data, to and from
  Socket next_errors, previous_errors;

  // Tells both neighbours of this rank's error and closes all. Where it is only
  // that a neighbour has closed or is silent, that one is asked first: its
  // reason, which may be yet another's, then becomes this rank's. Waits for it
  // for a second, or as long as that neighbour itself is still finding out.
  // Returns the error.
  Status Fail(int rank, int size, Status error);
};

// How a rank is named in messages, such that no name begins another's.
std::string RankName(int rank, int size);  // "rank 2 of 4"

// An error as a frame and back; messages are cut at 2 KiB.
Status SendError(Socket& to, int rank, const Status& error, Deadline deadline);
// What the peer says has gone wrong; `frame` is the header that came before. A
// frame that is no error, or that makes no sense, is one of kDataLoss.
Status ReceiveErrorBehind(const Frame& frame, Socket& from, Deadline deadline);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_LINKS_H_
