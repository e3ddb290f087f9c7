// Certificates of a job: an authority of its own, which signs one for each
// process and is forgotten with the launcher.
#ifndef SLUICE_DIST_NET_AUTHORITY_H_
#define SLUICE_DIST_NET_AUTHORITY_H_

#include <chrono>
#include <memory>
#include <string>

#include "dist/net/credentials.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Issues P-256 keys, and certificates that are valid from an hour ago, since
// hosts' clocks differ. The authority's own key never leaves it. Movable.
class Authority {
 public:
  // kUnimplemented in a build without OpenSSL.
  static Result<Authority> Create(const std::string& job);
  Authority(Authority&&) noexcept;
  ~Authority();

  const std::string& job() const { return job_; }
  // Credentials of a process of the job, which may both connect and be
  // connected to.
  Result<Credentials> Issue(const std::string& role, int rank,
                            std::chrono::seconds valid) const;

 private:
  struct Impl;
  Authority(std::string job, std::unique_ptr<Impl> impl);

  std::string job_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_AUTHORITY_H_
