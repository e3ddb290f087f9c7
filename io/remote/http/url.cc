#include "io/remote/http/url.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/parse_number.h"
#include "io/files/open_files.h"
#include "io/files/schemes.h"
#include "io/remote/http/ascii.h"

namespace sluice::remote {

namespace {

constexpr size_t kMaxBucket = 255, kMaxKey = 1024;

bool IsUnreserved(char c) {
  return IsAlphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

void AppendEncoded(char c, std::string* text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  const auto byte = static_cast<uint8_t>(c);
  *text += '%';
  *text += kDigits[byte >> 4];
  *text += kDigits[byte & 15];
}

template <typename Keep>
std::string Encode(std::string_view raw, Keep keep) {
  std::string encoded;
  encoded.reserve(raw.size());
  for (const char c : raw) {
    if (keep(c)) {
      encoded += c;
    } else {
      AppendEncoded(c, &encoded);
    }
  }
  return encoded;
}

// Of a hexadecimal digit; 16 for what is none.
unsigned HexValue(char c) {
  if (IsDigit(c)) return static_cast<unsigned>(c - '0');
  const char lower = static_cast<char>(c | 0x20);
  if (lower >= 'a' && lower <= 'f')
    return static_cast<unsigned>(lower - 'a') + 10;
  return 16;
}

// A host name, an IPv4 address or an IPv6 address in brackets.
bool IsHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
      return HexValue(c) < 16 || c == ':' || c == '.';
    });
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), IsUnreserved);
}

// None for what is no port; 0 for an empty one, which is the scheme's own.
std::optional<unsigned> ParsePort(std::string_view digits) {
  if (digits.empty()) return 0u;
  const auto port = ParseWhole<unsigned>(digits);
  if (!port || *port == 0 || *port > 65535) return std::nullopt;
  return port;
}

}  // namespace

Result<ObjectPath> ParseObjectPath(std::string_view path) {
  constexpr std::string_view kScheme = "s3://";
  const auto error = [&](std::string_view what) {
    return InvalidArgument("'" + Escaped(path) + "' " + std::string(what) +
                           ", wanted s3://bucket/key");
  };
  if (!path.starts_with(kScheme)) return error("is no S3 path");
  const std::string_view rest = path.substr(kScheme.size());
  const std::string_view bucket = rest.substr(0, rest.find('/'));
  std::string_view key = rest.substr(bucket.size());
  if (!key.empty()) key.remove_prefix(1);
  if (bucket.empty()) return error("names no bucket");
  if (bucket.size() > kMaxBucket || !IsAlphanumeric(bucket[0]) ||
      !std::all_of(bucket.begin(), bucket.end(),
                   [](char c) { return IsUnreserved(c) && c != '~'; })) {
    return error("has a bucket's name that no bucket can have");
  }
  if (key.size() > kMaxKey) return error("has a key of more than 1024 bytes");
  return ObjectPath{std::string(bucket), std::string(key)};
}

std::string Url::Shown() const {
  return scheme + "://" + host + path;
}

std::string Url::ToString() const {
  return query.empty() ? Shown() : Shown() + "?" + query;
}

Result<Url> ParseUrl(std::string_view text) {
  const std::string scheme = LowerCase(SchemeOf(text));
  if (scheme != "http" && scheme != "https") {
    return InvalidArgument("an address begins with https:// or http://, got " +
                           (scheme.empty() ? "none of them" : scheme + "://"));
  }
  text.remove_prefix(scheme.size() + 3);
  text = text.substr(0, text.find('#'));
  const size_t host_end = std::min(text.find_first_of("/?"), text.size());
  std::string_view host = text.substr(0, host_end);
  std::string_view rest = text.substr(host_end);
  const auto error = [&](std::string_view what) {
    return InvalidArgument(
        scheme + "://" +
        Escaped(host.substr(std::min(host.rfind('@') + 1, host.size()))) +
        ": " + std::string(what));
  };
  if (host.find('@') != std::string_view::npos) {
    return error("an address must hold no user name and no password");
  }
  // Behind the brackets of an IPv6 address, which has colons of its own.
  const size_t bracket = host.rfind(']');
  const size_t colon =
      host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view name = host.substr(0, colon);
  const std::optional<unsigned> port =
      ParsePort(colon == std::string_view::npos ? "" : host.substr(colon + 1));
  if (!IsHost(name)) return error("this is no host's name");
  if (!port) return error("a port is a number from 1 to 65535");
  Url url{scheme, LowerCase(name), "/", ""};
  if (*port != 0 && *port != (scheme == "http" ? 80u : 443u)) {
    url.host += ":" + std::to_string(*port);
  }
  for (const char c : rest) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte <= 0x20 || byte == 0x7f) {
      return error(
          "the address has a space or control character, which is written as "
          "%XX");
    }
  }
  const std::string encoded =
      Encode(rest, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  const size_t question = std::min(encoded.find('?'), encoded.size());
  if (question > 0) url.path = encoded.substr(0, question);
  if (question < encoded.size()) url.query = encoded.substr(question + 1);
  return url;
}

std::string EncodePath(std::string_view raw) {
  return Encode(raw, [](char c) { return IsUnreserved(c) || c == '/'; });
}

std::string EncodeQueryPart(std::string_view raw) {
  return Encode(raw, IsUnreserved);
}

std::string EncodeQuery(const NamedValues& parameters) {
  // As pairs: "a-=" comes behind "a=", though "-" comes before "=".
  NamedValues encoded;
  for (const auto& [name, value] : parameters) {
    encoded.emplace_back(EncodeQueryPart(name), EncodeQueryPart(value));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string query;
  for (const auto& [name, value] : encoded) {
    if (!query.empty()) query += '&';
    query += name;
    query += '=';
    query += value;
  }
  return query;
}

Result<std::string> DecodePercent(std::string_view encoded,
                                  bool plus_is_space) {
  std::string raw;
  raw.reserve(encoded.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      raw += encoded[i] == '+' && plus_is_space ? ' ' : encoded[i];
      continue;
    }
    const unsigned high =
        i + 2 < encoded.size() ? HexValue(encoded[i + 1]) : 16;
    const unsigned low = high < 16 ? HexValue(encoded[i + 2]) : 16;
    if (low == 16) {
      return InvalidArgument("'" + Escaped(encoded) +
                             "' has a % without two hexadecimal digits");
    }
    raw += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return raw;
}

}  // namespace sluice::remote
