#include "io/remote/register.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "io/files/schemes.h"
#include "io/remote/http/curl_client.h"
#include "io/remote/s3/credentials.h"
#include "io/remote/s3/s3_files.h"
#include "io/remote/unavailable_files.h"
#include "io/remote/web_files.h"

namespace sluice {
namespace {

// Which of the libraries for it this build has not.
std::optional<std::string> MissingForS3() {
  std::string missing;
  [[maybe_unused]] const auto lacks = [&](const char* library) {
    missing += missing.empty() ? "" : ", ";
    missing += library;
  };
#ifndef SLUICE_HAVE_CURL
  lacks("libcurl");
#endif
#ifndef SLUICE_HAVE_CRYPTO
  lacks("OpenSSL");
#endif
#ifndef SLUICE_HAVE_EXPAT
  lacks("expat");
#endif
  if (missing.empty()) return std::nullopt;
  return missing;
}

struct RemoteFiles {
  std::unique_ptr<remote::HttpClient> client;
  std::unique_ptr<FileSystem> s3, web;
};

RemoteFiles* Register() {
  auto* remote = new RemoteFiles;
  const remote::Environment environment = remote::ProcessEnvironment();
  auto client = remote::MakeCurlClient(
      {.ca_file = environment("AWS_CA_BUNDLE").value_or("")});
  const Status error = client.status();
  if (error.ok()) {
    remote->client = *std::move(client);
    remote->web = std::make_unique<remote::WebFiles>(*remote->client);
  } else {
    remote->web = std::make_unique<remote::UnavailableFiles>(error);
  }
  if (const auto missing = MissingForS3()) {
    remote->s3 = std::make_unique<remote::UnavailableFiles>(
        Unimplemented("s3:// needs a build of Sluice with " + *missing));
  } else if (!error.ok()) {
    remote->s3 = std::make_unique<remote::UnavailableFiles>(error);
  } else {
    remote->s3 =
        std::make_unique<remote::S3Files>(*remote->client, environment);
  }
  RegisterScheme("s3", *remote->s3);
  RegisterScheme("https", *remote->web);
  RegisterScheme("http", *remote->web);
  return remote;
}

}  // namespace

void RegisterRemoteFiles() {
  // Never destroyed: other threads may read until the process ends.
  [[gnu::used]] static const RemoteFiles* const remote = Register();
}

}  // namespace sluice
