#include "dist/collective/trust.h"

#include <fmt/format.h>

#include "dist/net/address.h"
#include "dist/net/credentials.h"

namespace sluice::dist {

Result<std::shared_ptr<const Tls>> OwnTls(const LaunchInfo& info) {
  if (!info.credentials) return std::shared_ptr<const Tls>();
  SLUICE_ASSIGN_OR_RETURN(auto tls, Tls::Create(*info.credentials));
  const Identity& own = tls->identity();
  const int rank = info.JobRank(info.rank);
  if (own.role != kWorkerRole || own.rank != rank) {
    return InvalidArgument(
        fmt::format("this is rank {}, its certificate {}'s", rank, own.Name()));
  }
  return tls;
}

Status RequireLoopback(const Socket& socket) {
  SLUICE_ASSIGN_OR_RETURN(const Address peer,
                          PeerAddressOf(socket.descriptor()));
  if (IsLoopback(peer)) return {};
  return FailedPrecondition(
      fmt::format("{} is not this host, and there are no credentials to go "
                  "there encrypted; --allow-plaintext goes without",
                  HostOf(peer)));
}

Status RequireLoopback(const Listener& listener, int rank) {
  SLUICE_ASSIGN_OR_RETURN(const Address own,
                          LocalAddressOf(listener.descriptor()));
  if (!own.is_internet() || IsLoopback(own)) return {};
  return FailedPrecondition(
      fmt::format("rank {} is to listen at {}, beyond this host, and there are "
                  "no credentials; --allow-plaintext goes without",
                  rank, HostOf(own)));
}

}  // namespace sluice::dist
