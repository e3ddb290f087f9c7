// The identity of a process of a job, and the credentials that prove it to
// others.
//
// A certificate says so by a URI among its names (X.509's subjectAltName):
//
//   sluice://JOB/ROLE/RANK       sluice://6f1c…/worker/3
//
// JOB and ROLE are of letters, digits, "-", "_" and ".", at most 64 of them;
// RANK is a number without leading zeros. The launcher makes such certificates
// (authority.h); users may bring their own.
#ifndef SLUICE_DIST_NET_CREDENTIALS_H_
#define SLUICE_DIST_NET_CREDENTIALS_H_

#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {
namespace dist {

struct Identity {
  std::string job;
  std::string role;  // "worker"
  int rank = 0;      // among those of the role

  // "worker 3"
  std::string Name() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};
inline constexpr std::string_view kWorkerRole = "worker";
inline constexpr std::string_view kServerRole = "ps";  // of parameters

// Requires an identity that ParseIdentity would give.
std::string UriOf(const Identity& identity);
// kInvalidArgument where the text is none of the above.
Result<Identity> ParseIdentity(std::string_view uri);

// The credentials of a process, as PEM texts.
struct Credentials {
  std::string authority;    // the certificate, or several, that others' must be
                            // signed by
  std::string certificate;  // this process's own, and behind it those of who
                            // signed it, up to the authority
  std::string key;          // its private key, without a password
};

// One text for a pipe: certificate, key, authority, one behind another.
std::string TextOf(const Credentials& credentials);
// Parses such a text: the certificates before the key are one's own, those
// behind it the authority; where all are on one side, the first is one's own.
// kInvalidArgument, in whose message nothing of the text is.
Result<Credentials> ParseCredentials(std::string_view text);

// Reads them from a folder that users made: ca.pem, <role>-<rank>.pem,
// <role>-<rank>.key. A key that others than its owner may read is
// kInvalidArgument, as for ssh.
Result<Credentials> ReadCredentials(const std::string& folder,
                                    std::string_view role, int rank);
// Reads them from three files.
Result<Credentials> ReadCredentialFiles(const std::string& authority,
                                        const std::string& certificate,
                                        const std::string& key);

// Reads the token that processes without certificates know each other by: a
// word of 32 to 64 characters in a file that its owner alone may read.
Result<std::string> ReadTokenFile(const std::string& path);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_CREDENTIALS_H_
