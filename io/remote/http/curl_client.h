// HTTP by libcurl.
#ifndef SLUICE_IO_REMOTE_HTTP_CURL_CLIENT_H_
#define SLUICE_IO_REMOTE_HTTP_CURL_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "engine/status.h"
#include "io/remote/http/http.h"

namespace sluice::remote {

struct CurlOptions {
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  // A transfer that moves nothing for so long has failed; whole seconds.
  std::chrono::seconds stall = std::chrono::seconds(20);
  // Certificates (PEM) to trust instead of the system's; empty: the system's.
  std::string ca_file;
};

// HTTP/1.1, each transfer on a connection of its own that is kept for the next
// one. Certificates are always verified. Proxies are those of the environment
// (https_proxy, http_proxy, no_proxy as curl(1) reads them), never for this
// machine itself. SIGPIPE is not raised. kUnimplemented in a build without
// libcurl.
Result<std::unique_ptr<HttpClient>> MakeCurlClient(
    const CurlOptions& options = {});

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_CURL_CLIENT_H_
