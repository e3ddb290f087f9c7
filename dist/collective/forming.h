// How the processes of a job find each other.
//
// Rank 0 listens where the launcher said. Every other rank listens on a port of
// its own, connects to rank 0 and says hello; rank 0 answers, when all have
// come, with the addresses of all and who is on which host, or with what has
// gone wrong; that connection stays, for membership (membership.h). Then each
// rank connects twice to the next one and to its partners (links.h), with a
// hello again, and admits the one before and its partners, and they agree on
// what the data goes through (sharing.h).
//
// Where a rank has credentials every connection is TLS, of any host, and each
// end's certificate has to be that of the rank that it is; what neighbours
// share memory for does not go through a connection. Without credentials all
// connections are of the loopback, or GroupOptions::allow_plaintext.
#ifndef SLUICE_DIST_COLLECTIVE_FORMING_H_
#define SLUICE_DIST_COLLECTIVE_FORMING_H_

#include "dist/collective/links.h"
#include "dist/collective/options.h"
#include "dist/launch_info.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// Connects a job of two processes or more. Takes info.listen_fd.
// kDeadlineExceeded says who is missing: "rank 0 of 4 waits for ranks 2, 3". A
// process that ends when all have come is kUnavailable for all, by name; one
// that ends before may be started again, unless `apart`, a descriptor or none,
// has something to read: then an elastic job's rank 0 is not to wait for it
// (roster_member.h), nor is anybody of a part of a group that has come to its
// end (membership.h).
Result<Links> FormRing(const LaunchInfo& info, const GroupOptions& options,
                       int apart = -1);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_FORMING_H_
