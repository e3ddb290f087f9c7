// How ranks on one host come to exchange data through memory in place of a
// connection (dist/net/shared_ring.h).
//
// These frames, each with a text, go over the connection from a rank to
// another:
//
//   the one      I offer: which system this runs on, where I listen locally,
//                and a secret; or no, and why
//   the other    I have connected there and shown the secret; or no, and why
//   the one      (on the local connection) the memory's descriptor
//   the other    the text that lies in the memory; or no, and why
//
// Only a process that can map the memory can say the last, so that host names,
// which containers may have in common, prove nothing. All ranks agree on one
// connection after another, in the same order: nobody waits in a circle.
#ifndef SLUICE_DIST_COLLECTIVE_SHARING_H_
#define SLUICE_DIST_COLLECTIVE_SHARING_H_

#include "dist/collective/links.h"
#include "dist/collective/options.h"
#include "dist/launch_info.h"
#include "dist/net/descriptor.h"
#include "engine/status.h"

namespace sluice::dist {

// Gives the wires rings where both sides may and can share memory. Where they
// may, are on one system and cannot, options.note is told why, for the next
// rank; where options.transport is kShared, a wire without a ring is
// kFailedPrecondition that names both ranks.
Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, Links* links);
// Gives the wires of two processes alone, rank 0 and 1, rings.
Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, WirePair* wires);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_SHARING_H_
