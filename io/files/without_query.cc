#include "io/files/without_query.h"

#include <algorithm>
#include <cctype>

#include "io/files/schemes.h"

namespace sluice {

std::string WithoutQuery(const std::string& path) {
  std::string scheme(SchemeOf(path));
  // No file system is registered for "HTTPS", but its error has the address.
  std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const bool web = scheme == "https" || scheme == "http";
  return web ? path.substr(0, path.find_first_of("?#")) : path;
}

std::string FileNameOf(const std::string& path) {
  const std::string whole = WithoutQuery(path);
  return whole.substr(whole.rfind('/') + 1);
}

}  // namespace sluice
