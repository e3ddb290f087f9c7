#include "dist/net/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "engine/parse_number.h"

namespace sluice::dist {
namespace {

constexpr std::string_view kScheme = "sluice://";
constexpr size_t kLongestWord = 64;
constexpr size_t kLongestFile = size_t{256} << 10;

bool IsWord(std::string_view text) {
  return !text.empty() && text.size() <= kLongestWord &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "-_.") == std::string_view::npos;
}

// The first PEM block whose label ends so, from `at` on; moves `at` behind it.
// Empty where there is none.
std::string_view NextBlock(std::string_view text, std::string_view label,
                           size_t* at) {
  constexpr std::string_view kBegin = "-----BEGIN ", kDashes = "-----";
  while (true) {
    const size_t begin = text.find(kBegin, *at);
    if (begin == std::string_view::npos) return {};
    const size_t name = begin + kBegin.size();
    const size_t name_end = text.find(kDashes, name);
    if (name_end == std::string_view::npos) return {};
    const std::string_view found = text.substr(name, name_end - name);
    const std::string last = fmt::format("-----END {}-----", found);
    const size_t end = text.find(last, name_end);
    if (end == std::string_view::npos) return {};
    *at = end + last.size();
    if (found.ends_with(label)) return text.substr(begin, *at - begin);
  }
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLongestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.empty()) {
    return NotFound(fmt::format("'{}' cannot be read or is empty", path));
  }
  if (text.size() > kLongestFile) {
    return InvalidArgument(
        fmt::format("'{}' is longer than {} bytes", path, kLongestFile));
  }
  return text;
}

Status CheckPrivate(const std::string& path, const char* what) {
  struct stat about {};
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (stat(path.c_str(), &about) != 0 || (about.st_mode & kOthers) == 0) {
    return {};
  }
  return InvalidArgument(
      fmt::format("others may read the {} '{}' (mode {:o}): chmod 600 it", what,
                  path, about.st_mode & 0777U));
}

}  // namespace

std::string Identity::Name() const {
  return fmt::format("{} {}", role, rank);
}

std::string UriOf(const Identity& identity) {
  return fmt::format("{}{}/{}/{}", kScheme, identity.job, identity.role,
                     identity.rank);
}

Result<Identity> ParseIdentity(std::string_view uri) {
  const Status senseless = InvalidArgument(
      fmt::format("not sluice://JOB/ROLE/RANK: {} bytes", uri.size()));
  if (!uri.starts_with(kScheme)) return senseless;
  const std::string_view rest = uri.substr(kScheme.size());
  const size_t first = rest.find('/');
  const size_t last = rest.rfind('/');
  if (first == std::string_view::npos || first == last) return senseless;
  Identity identity;
  identity.job = rest.substr(0, first);
  identity.role = rest.substr(first + 1, last - first - 1);
  if (!IsWord(identity.job) || !IsWord(identity.role)) return senseless;
  const auto rank = ParseWhole<int>(rest.substr(last + 1));
  if (!rank || *rank < 0) return senseless;
  identity.rank = *rank;
  if (UriOf(identity) != uri) return senseless;
  return identity;
}

std::string TextOf(const Credentials& credentials) {
  return credentials.certificate + credentials.key + credentials.authority;
}

Result<Credentials> ParseCredentials(std::string_view text) {
  Credentials credentials;
  size_t key_end = 0, at = 0;
  credentials.key = NextBlock(text, "PRIVATE KEY", &key_end);
  std::vector<std::string_view> own, authority;
  while (true) {
    const std::string_view block = NextBlock(text, "CERTIFICATE", &at);
    if (block.empty()) break;
    (at < key_end ? own : authority).push_back(block);
  }
  // Who wrote it by hand may have the key at either end.
  if (own.empty()) std::swap(own, authority);
  if (authority.empty() && !own.empty()) {
    authority.assign(own.begin() + 1, own.end());
    own.resize(1);
  }
  if (credentials.key.empty() || authority.empty()) {
    return InvalidArgument(fmt::format(
        "{} bytes are no credentials: they must be a certificate, a private "
        "key and the authority's certificate, as PEM",
        text.size()));
  }
  credentials.key += "\n";
  credentials.certificate = fmt::format("{}\n", fmt::join(own, "\n"));
  credentials.authority = fmt::format("{}\n", fmt::join(authority, "\n"));
  return credentials;
}

Result<Credentials> ReadCredentialFiles(const std::string& authority,
                                        const std::string& certificate,
                                        const std::string& key) {
  Credentials credentials;
  SLUICE_ASSIGN_OR_RETURN(credentials.authority, ReadFile(authority));
  SLUICE_ASSIGN_OR_RETURN(credentials.certificate, ReadFile(certificate));
  SLUICE_RETURN_IF_ERROR(CheckPrivate(key, "key"));
  SLUICE_ASSIGN_OR_RETURN(credentials.key, ReadFile(key));
  return credentials;
}

Result<Credentials> ReadCredentials(const std::string& folder,
                                    std::string_view role, int rank) {
  const std::string own = fmt::format("{}/{}-{}", folder, role, rank);
  return ReadCredentialFiles(folder + "/ca.pem", own + ".pem", own + ".key");
}

Result<std::string> ReadTokenFile(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(CheckPrivate(path, "token"));
  Result<std::string> token = ReadFile(path);
  if (!token.ok()) return token;
  const size_t last = token->find_last_not_of(" \t\r\n");
  token->resize(last == std::string::npos ? 0 : last + 1);
  const size_t size = token->size();
  if (size < 32 || size > 64) {
    token = InvalidArgument(fmt::format(
        "the token in '{}' has {} characters, not 32 to 64", path, size));
  }
  return token;
}

}  // namespace sluice::dist
