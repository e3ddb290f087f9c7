// Addresses of objects and web pages, and percent-encoding as S3 signs it.
#ifndef SLUICE_IO_REMOTE_HTTP_URL_H_
#define SLUICE_IO_REMOTE_HTTP_URL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"

namespace sluice::remote {

// Headers, or a query's parameters: in order, names may repeat.
using NamedValues = std::vector<std::pair<std::string, std::string>>;

// "s3://bucket/key", the key's bytes as they are: S3 knows no folders, so "//",
// "." and ".." in it are names like others, and "%", "?", "#" are themselves.
struct ObjectPath {
  std::string bucket;
  std::string key;  // without the slash behind the bucket; may be empty
};

// kInvalidArgument where the scheme is another one, the bucket is none (a
// letter or digit, then up to 254 of these, ".", "-" and "_") or the key is
// longer than S3's 1024 bytes.
Result<ObjectPath> ParseObjectPath(std::string_view path);

// "https://host:port/path?query".
struct Url {
  std::string scheme;  // "http" or "https"
  // The host as in the Host header: in lower case, with ":port" where that is
  // not the scheme's own, IPv6 addresses in brackets.
  std::string host;
  // The path as it was written, but for bytes beyond ASCII, which become "%XX";
  // at least "/".
  std::string path;
  std::string query;  // likewise, without "?"; may be empty

  std::string ToString() const;
  // The address for messages: without the query, which may hold a signature.
  std::string Shown() const;
};

// kInvalidArgument, with a message that shows scheme and host alone, for other
// schemes, user names and passwords in the address (they would end up in logs),
// control characters, spaces and bad ports. "#..." is left off.
Result<Url> ParseUrl(std::string_view text);

// The unreserved letters of RFC 3986 stay (A-Z a-z 0-9 "-" "." "_" "~"), every
// other byte becomes "%XX". EncodePath keeps "/" as well.
std::string EncodePath(std::string_view raw);
std::string EncodeQueryPart(std::string_view raw);

// "a=1&b=" of raw names and values, both encoded, sorted as SigV4 has them, by
// encoded name, then value. Empty for no parameters.
std::string EncodeQuery(const NamedValues& parameters);

// Undoes "%XX", for list answers with encoding-type=url; "+" is itself unless
// `plus_is_space`. kInvalidArgument for a "%" without two hexadecimal digits.
Result<std::string> DecodePercent(std::string_view encoded,
                                  bool plus_is_space = false);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_URL_H_
