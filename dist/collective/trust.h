// Which peers a rank that joins may talk to: with credentials those that show a
// certificate, without them those of this host.
#ifndef SLUICE_DIST_COLLECTIVE_TRUST_H_
#define SLUICE_DIST_COLLECTIVE_TRUST_H_

#include <memory>

#include "dist/launch_info.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::dist {

// This rank's TLS context; null where there are no credentials.
// kInvalidArgument where they are not this rank's.
Result<std::shared_ptr<const Tls>> OwnTls(const LaunchInfo& info);

// For ranks without credentials: kFailedPrecondition, naming the address, where
// the other end of a connection, or the address that `rank` is to listen at, is
// beyond this host: whoever could reach it would be heard.
Status RequireLoopback(const Socket& socket);
Status RequireLoopback(const Listener& listener, int rank);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_TRUST_H_
