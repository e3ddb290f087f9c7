#include "io/remote/s3/sigv4.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "io/remote/http/ascii.h"

#ifdef SLUICE_HAVE_CRYPTO
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

namespace sluice::remote {

#ifdef SLUICE_HAVE_CRYPTO

namespace {

using Digest = std::array<uint8_t, 32>;

std::string Hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<Digest> Hmac(std::string_view key, std::string_view text) {
  Digest digest;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const uint8_t*>(text.data()), text.size(),
           digest.data(), nullptr) == nullptr) {
    return Internal("libcrypto computes no HMAC-SHA256");
  }
  return digest;
}

Result<Digest> Hmac(const Digest& key, std::string_view text) {
  return Hmac({reinterpret_cast<const char*>(key.data()), key.size()}, text);
}

// Without spaces at the ends, those between words one each.
std::string Trimmed(std::string_view value) {
  std::string trimmed;
  bool space = false;
  for (const char c : Stripped(value)) {
    const bool was_space =
        std::exchange(space, kSpaces.find(c) != kSpaces.npos);
    if (!space) {
      trimmed += c;
    } else if (!was_space) {
      trimmed += ' ';
    }
  }
  return trimmed;
}

// "host;x-amz-date" and "host:example.com\nx-amz-date:20150830T123600Z\n".
struct CanonicalHeaders {
  std::string names, lines;
};

CanonicalHeaders Canonical(const NamedValues& headers) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : headers) {
    const auto [at, first] = sorted.try_emplace(LowerCase(name));
    if (!first) at->second += ',';
    at->second += Trimmed(value);
  }
  CanonicalHeaders canonical;
  for (const auto& [name, value] : sorted) {
    if (!canonical.names.empty()) canonical.names += ';';
    canonical.names += name;
    canonical.lines.append(name).append(":").append(value).append("\n");
  }
  return canonical;
}

// "20150830T123600Z"; empty for what no calendar has.
std::string Timestamp(std::time_t time) {
  std::tm calendar{};
  if (gmtime_r(&time, &calendar) == nullptr) return {};
  std::array<char, 32> text;
  return {text.data(),
          std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &calendar)};
}

}  // namespace

Result<std::string> Sha256Hex(std::span<const std::string_view> pieces) {
  Digest digest;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool fine = context != nullptr &&
              EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
  for (const std::string_view piece : pieces) {
    fine = fine && EVP_DigestUpdate(context, piece.data(), piece.size()) == 1;
  }
  fine = fine && EVP_DigestFinal_ex(context, digest.data(), nullptr) == 1;
  EVP_MD_CTX_free(context);
  if (!fine) return Internal("libcrypto computes no SHA-256");
  return Hex(digest);
}

Result<NamedValues> Sign(const SigningRequest& request,
                         const SigningScope& scope,
                         const Credentials& credentials, std::time_t time) {
  const std::string timestamp = Timestamp(time);
  if (timestamp.empty()) return InvalidArgument("no date can be signed");
  const std::string date = timestamp.substr(0, 8);

  NamedValues added = {{"x-amz-date", timestamp}};
  if (scope.service == "s3") {
    added.emplace_back("x-amz-content-sha256", request.payload_hash);
  }
  if (!credentials.session_token.empty()) {
    added.emplace_back("x-amz-security-token", credentials.session_token);
  }
  NamedValues headers = request.headers;
  headers.emplace_back("host", request.host);
  headers.insert(headers.end(), added.begin(), added.end());
  const CanonicalHeaders canonical = Canonical(headers);

  SLUICE_ASSIGN_OR_RETURN(
      const std::string request_hash,
      Sha256Hex(request.method + "\n" + EncodePath(request.path) + "\n" +
                EncodeQuery(request.query) + "\n" + canonical.lines + "\n" +
                canonical.names + "\n" + request.payload_hash));
  const std::string place =
      date + "/" + scope.region + "/" + scope.service + "/aws4_request";
  SLUICE_ASSIGN_OR_RETURN(Digest key,
                          Hmac("AWS4" + credentials.secret_key, date));
  const std::string text =
      "AWS4-HMAC-SHA256\n" + timestamp + "\n" + place + "\n" + request_hash;
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request"), std::string_view(text)}) {
    SLUICE_ASSIGN_OR_RETURN(key, Hmac(key, part));
  }
  added.emplace_back("authorization",
                     "AWS4-HMAC-SHA256 Credential=" + credentials.access_key +
                         "/" + place + ", SignedHeaders=" + canonical.names +
                         ", Signature=" + Hex(key));
  return added;
}

#else

namespace {

Status NoCrypto() {
  return Unimplemented(
      "this build has no OpenSSL, so it cannot sign requests to S3; install "
      "libssl-dev and build again");
}

}  // namespace

Result<std::string> Sha256Hex(std::span<const std::string_view>) {
  return NoCrypto();
}

Result<NamedValues> Sign(const SigningRequest&, const SigningScope&,
                         const Credentials&, std::time_t) {
  return NoCrypto();
}

#endif

Result<std::string> Sha256Hex(std::string_view bytes) {
  return Sha256Hex(std::span(&bytes, 1));
}

}  // namespace sluice::remote
