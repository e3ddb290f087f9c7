#include "io/remote/s3/s3_address.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "io/remote/http/ascii.h"

namespace sluice::remote {

namespace {

// Of an endpoint, whose path may be that of a gateway's.
Result<Url> ParseEndpoint(const std::string& endpoint) {
  auto url = ParseUrl(endpoint);
  if (!url.ok()) return url.status().WithContext("the S3 endpoint");
  if (!url->query.empty()) {
    return InvalidArgument("the S3 endpoint " + url->Shown() +
                           " has a query, which no endpoint has");
  }
  while (url->path.ends_with('/')) url->path.pop_back();
  return url;
}

// A host's name can begin with the bucket's.
bool FitsHost(std::string_view bucket) {
  return bucket.size() >= 3 && bucket.size() <= 63 && bucket.back() != '-' &&
         std::all_of(bucket.begin(), bucket.end(), [](char c) {
           return IsLowerLetter(c) || IsDigit(c) || c == '-' || c == '.';
         });
}

bool IsIpAddress(std::string_view host) {
  return host.find_first_not_of("0123456789.:") == std::string_view::npos ||
         host.starts_with('[');
}

bool BucketInHost(const S3Settings& settings, const std::string& host,
                  const std::string& bucket) {
  if (settings.addressing == Addressing::kPath || !FitsHost(bucket) ||
      IsIpAddress(host)) {
    return false;
  }
  // Certificates are for one name before the endpoint's, not for two.
  return settings.addressing == Addressing::kVirtual ||
         (settings.endpoint.empty() && bucket.find('.') == std::string::npos);
}

}  // namespace

std::string S3Address::ToString() const {
  return scheme + "://" + host + EncodePath(path);
}

Result<S3Address> AddressOf(const S3Settings& settings,
                            const ObjectPath& object) {
  const std::string amazon = "https://s3." + settings.region +
                             ".amazonaws.com" +
                             (settings.region.starts_with("cn-") ? ".cn" : "");
  SLUICE_ASSIGN_OR_RETURN(
      const Url url,
      ParseEndpoint(settings.endpoint.empty() ? amazon : settings.endpoint));
  SLUICE_ASSIGN_OR_RETURN(std::string path, DecodePercent(url.path));
  S3Address address{url.scheme, url.host, std::move(path)};
  if (BucketInHost(settings, url.host, object.bucket)) {
    address.host = object.bucket + "." + url.host;
  } else {
    address.path += "/" + object.bucket;
  }
  if (!object.key.empty() || address.path.empty()) {
    address.path += "/" + object.key;
  }
  return address;
}

}  // namespace sluice::remote
