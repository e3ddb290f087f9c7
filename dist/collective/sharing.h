// How neighbours on one host come to exchange data through memory in place of
// a connection (dist/net/shared_ring.h).
//
// On the connection from a rank to the next, each of these a frame with a text:
//
//   the one      I offer: which system this runs on, where I listen locally,
//                and a secret; or no, and why
//   the next     I have connected there and shown the secret; or no, and why
//   the one      (on the local connection) the memory's descriptor
//   the next     the text that lies in the memory; or no, and why
//
// Only who can map the memory can say the last, so that nothing is believed of
// host names, which containers may have in common. All ranks take these steps
// one after another with both neighbours, and each waits only for a neighbour's
// earlier ones: nobody waits in a circle.
#ifndef SLUICE_DIST_COLLECTIVE_SHARING_H_
#define SLUICE_DIST_COLLECTIVE_SHARING_H_

#include "dist/collective/links.h"
#include "dist/collective/options.h"
#include "dist/launch_info.h"
#include "dist/net/descriptor.h"
#include "engine/status.h"

namespace sluice::dist {

// Gives the links rings where both sides may and can. Where they may, are on
// one system and cannot, options.note is told why; where options.transport is
// kShared, a neighbour without is kFailedPrecondition that names both.
Status ShareMemory(const LaunchInfo& info, const GroupOptions& options,
                   Deadline deadline, Links* links);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_SHARING_H_
