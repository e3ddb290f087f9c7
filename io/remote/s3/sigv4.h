// AWS Signature Version 4, by which S3 and those who speak like it know who
// sends a request: docs.aws.amazon.com, "Create a signed AWS API request". The
// hashes are libcrypto's.
#ifndef SLUICE_IO_REMOTE_S3_SIGV4_H_
#define SLUICE_IO_REMOTE_S3_SIGV4_H_

#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/remote/http/url.h"

namespace sluice::remote {

// Secrets: no message and no log may show secret_key or session_token.
struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty for lasting keys
};

// The payload hash of a body that nobody hashed: S3 takes it over https.
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

struct SigningRequest {
  std::string method;  // "GET"
  std::string host;    // the Host header, with ":port" where one is sent
  // Raw, not percent-encoded: the request must be sent to EncodePath(path) and
  // EncodeQuery(query), letter by letter.
  std::string path;
  NamedValues query;
  // Signed, all of them, beside those that Sign adds, so each must reach the
  // server as it is here: leave out what the transport or a proxy may change
  // (User-Agent, Expect, Connection, Transfer-Encoding, Accept-Encoding). No
  // Host, Authorization or x-amz-date.
  NamedValues headers;
  std::string payload_hash;  // Sha256Hex of the body, or kUnsignedPayload
};

// What a signing key is good for.
struct SigningScope {
  std::string region;  // "us-east-1"
  // For services other than S3 only paths that need no encoding can be signed:
  // these services encode paths twice.
  std::string service = "s3";
};

// The headers to add to the request, names in lower case: x-amz-date,
// x-amz-content-sha256 (of service "s3" only), x-amz-security-token (where
// there is a session token), authorization. `time` is in seconds since 1970.
// kUnimplemented in a build without OpenSSL. Thread-safe.
Result<NamedValues> Sign(const SigningRequest& request,
                         const SigningScope& scope,
                         const Credentials& credentials, std::time_t time);

// SHA-256 in 64 lower-case hexadecimal digits. kUnimplemented in a build
// without OpenSSL.
Result<std::string> Sha256Hex(std::string_view bytes);
// The SHA-256 of the pieces put together, in hexadecimal.
Result<std::string> Sha256Hex(std::span<const std::string_view> pieces);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_SIGV4_H_
