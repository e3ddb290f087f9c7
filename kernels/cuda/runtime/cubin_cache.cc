#include "kernels/cuda/runtime/cubin_cache.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

#include "kernels/cuda/runtime/fingerprint.h"
#include "kernels/cuda/runtime/user_cache.h"

namespace sluice::cuda {
namespace {

struct Header {
  char magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'C', 'U'};
  uint64_t bytes = 0;
  uint64_t fingerprint = 0;
};

Header HeaderOf(std::string_view cubin) {
  Header header;
  header.bytes = cubin.size();
  header.fingerprint = Fingerprint(cubin);
  return header;
}

}  // namespace

std::optional<std::string> CubinCache::Load(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(folder_ / key, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string bytes = std::move(text).str();
  if (!file || bytes.size() <= sizeof(Header)) return std::nullopt;
  const std::string cubin = bytes.substr(sizeof(Header));
  const Header wanted = HeaderOf(cubin);
  if (std::memcmp(bytes.data(), &wanted, sizeof(Header)) != 0) {
    return std::nullopt;
  }
  return cubin;
}

void CubinCache::Store(const std::string& key, const std::string& cubin) const {
  if (folder_.empty()) return;
  const Header header = HeaderOf(cubin);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  WriteCacheFile(folder_ / key, bytes += cubin);
}

}  // namespace sluice::cuda
