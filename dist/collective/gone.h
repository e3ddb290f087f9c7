// Who is gone while the ranks of a job connect to each other. A rank's way to
// the coordinator (membership.h) is there then, but nobody hears what goes over
// it yet; nor does anybody leave in order before all have met, so that its end
// is always a failure.
#ifndef SLUICE_DIST_COLLECTIVE_GONE_H_
#define SLUICE_DIST_COLLECTIVE_GONE_H_

#include <poll.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// To be polled for the end of each, not for what comes: a rank that is further
// beats already. Sockets that are not connected are passed over.
std::vector<pollfd> EndsOf(std::span<const Socket> sockets);

// Whether one of them has ended. Waits for nothing.
bool AnyGone(std::span<const Socket> sockets);

// This rank, of a job of `size`, gives up. `control` are rank 0's ways to the
// others, by rank, or another's to rank 0: tells them why, before anything is
// closed that they would miss, and closes these. What all of the job have for
// an error from now on: where one has ended without a word that it has, "rank 2
// of 4 has ended while they connect", else what the first of them said, else
// `why`. Rank 0 has heard of most; another waits a moment for its word.
Status GiveUp(std::vector<Socket>& control, int rank, int size, uint32_t epoch,
              const Status& why);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_GONE_H_
