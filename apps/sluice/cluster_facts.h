// The facts that the processes of a job, ranks and parameter servers, tell each
// other about themselves.
#ifndef SLUICE_APPS_SLUICE_CLUSTER_FACTS_H_
#define SLUICE_APPS_SLUICE_CLUSTER_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch_info.h"
#include "dist/net/tls.h"
#include "engine/text/json.h"

namespace sluice::tool {

// The facts of one process, as others read them.
struct ProcessFacts {
  std::string text;  // all of it, a JSON object
  int64_t rank = -1;
  int64_t server = -1;  // which one it is, where it has no rank
  int64_t cores = 0;
  int64_t neighbours_by_memory = 0;  // of a rank
  int64_t clock_ahead = 0;           // seconds, of rank 0's
  std::string host, version, isa;
  double available_bytes = 0;
  // The identity in its certificate, if it has one, and when that expires, in
  // seconds since 1970.
  std::optional<dist::Identity> identity;
  int64_t expires = 0;

  bool serves() const { return server >= 0; }
  std::string Name() const;  // "rank 1", "ps 0"
};

// This process's own credentials, ready for use; null where it has none. Throws
// Error.
std::shared_ptr<const dist::Tls> TlsOf(const dist::LaunchInfo& info);
// The facts of this process. `who` is {"rank": 1} or {"server": 0}, `tls`
// TlsOf's; `ahead`: by how many seconds its clock is ahead of rank 0's.
Json OwnFacts(Json who, const dist::Tls* tls, int64_t ahead);
// Parses LenientText of OwnFacts, to which a rank adds "neighbours_by_memory".
// Throws Error.
ProcessFacts ReadFacts(const std::string& text);

// "certificate of worker 1 of job J until 2030-01-31 12:00 UTC"
std::string Certificate(const ProcessFacts& process);
// The faults that training with these processes would suffer from. That all
// have one version is checked where they meet.
std::vector<std::string> Warnings(const std::vector<ProcessFacts>& processes);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_CLUSTER_FACTS_H_
