// Finds peers that are gone while the ranks of a job connect to each other. A
// rank's way to the coordinator (membership.h) is there then, but nobody hears
// what goes over it yet; nor does anybody leave in order before all have met,
// so that its end is always a failure.
#ifndef SLUICE_DIST_COLLECTIVE_GONE_H_
#define SLUICE_DIST_COLLECTIVE_GONE_H_

#include <poll.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// What to poll for the end of each socket, not for data: a rank that is further
// ahead sends beats already. Sockets that are not connected are passed over.
std::vector<pollfd> EndsOf(std::span<const Socket> sockets);

// Whether one of the sockets has ended. Does not wait.
bool AnyGone(std::span<const Socket> sockets);

// Gives up joining, as `rank` of a job of `size`. `control` are rank 0's
// connections to the others, by rank, or another rank's to rank 0: tells them
// why, before anything is closed that they would miss, and closes these.
// Returns the error that the whole job has from now on: where one has ended
// without a word that it has, "rank 2 of 4 has ended while they connect", else
// what the first of them said, else `why`. Rank 0 has heard of most; another
// waits a moment for its word.
Status GiveUp(std::vector<Socket>& control, int rank, int size, uint32_t epoch,
              const Status& why);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_GONE_H_
