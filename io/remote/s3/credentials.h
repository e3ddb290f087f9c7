// This process's credentials for an object store, and where that is: from the
// environment and the profile files of the AWS tools (io/remote/s3/profiles.h),
// in botocore's order.
#ifndef SLUICE_IO_REMOTE_S3_CREDENTIALS_H_
#define SLUICE_IO_REMOTE_S3_CREDENTIALS_H_

#include <functional>
#include <optional>
#include <string>

#include "engine/status.h"
#include "io/remote/s3/sigv4.h"

namespace sluice::remote {

// A variable's value, none where it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

// getenv.
Environment ProcessEnvironment();

enum class Addressing {
  kAuto,  // path at a custom endpoint or for a bucket with dots, else virtual
  kPath,  // https://endpoint/bucket/key
  kVirtual,  // https://bucket.endpoint/key
};

struct S3Settings {
  // nullopt: requests are sent unsigned (public buckets).
  std::optional<Credentials> credentials;
  std::string region = "us-east-1";
  // "https://host:port"; empty for Amazon's own of the region.
  std::string endpoint;
  Addressing addressing = Addressing::kAuto;
};

// Each setting from the first that has it:
//   credentials  SLUICE_S3_ANONYMOUS=1 (none); AWS_ACCESS_KEY_ID,
//                AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; the profile in the
//                credentials file; the profile in the config file
//   region       AWS_REGION, AWS_DEFAULT_REGION, the profile's region,
//                "us-east-1"
//   endpoint     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of s3 in
//                the profile's services section, the profile's endpoint_url
//   addressing   the profile's s3 addressing_style (path, virtual, auto)
// The profile is AWS_PROFILE or "default"; the files are
// AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, AWS_CONFIG_FILE or
// ~/.aws/config. A variable that is empty counts as unset.
//
// kFailedPrecondition, with what to set, where there are no credentials, only
// half of them, or of a kind that is not read here (roles, single sign-on,
// processes); kNotFound where AWS_PROFILE names no profile; kInvalidArgument
// for files and values that are not well-formed. No message shows a secret.
Result<S3Settings> LoadS3Settings(const Environment& environment);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_CREDENTIALS_H_
