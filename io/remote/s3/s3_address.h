// The addresses that requests for an object go to.
#ifndef SLUICE_IO_REMOTE_S3_S3_ADDRESS_H_
#define SLUICE_IO_REMOTE_S3_S3_ADDRESS_H_

#include <string>

#include "engine/status.h"
#include "io/remote/http/url.h"
#include "io/remote/s3/credentials.h"

namespace sluice::remote {

// The address that requests for a bucket's object go to.
struct S3Address {
  std::string scheme;  // "https" or "http"
  std::string host;    // the Host header, with the port where one is needed
  std::string path;    // raw, for SigningRequest::path: "/key" or "/bucket/key"

  // "https://host/path" with the path percent-encoded, without a query.
  std::string ToString() const;
};

// An empty key is the bucket itself, as listing wants it. kInvalidArgument for
// an endpoint that is no address.
Result<S3Address> AddressOf(const S3Settings& settings,
                            const ObjectPath& object);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_ADDRESS_H_
