#include "kernels/cuda/cubin_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/cuda/fingerprint.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

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

std::string CubinCache::DefaultFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string base = variable("XDG_CACHE_HOME");
  if (base.empty() && !variable("HOME").empty()) {
    base = variable("HOME") + "/.cache";
  }
  return base.empty() ? "" : base + "/sluice";
}

std::optional<std::string> CubinCache::Load(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(fs::path(folder_) / key, std::ios::binary);
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
  static std::atomic<int> stored = 0;
  std::error_code error;
  fs::create_directories(folder_, error);
  const fs::path to = fs::path(folder_) / key;
  // Several processes may store the same at once; each renames its own.
  const fs::path temporary =
      fs::path(folder_) / fmt::format("{}.{}.{}", key, ::getpid(), stored++);
  const Header header = HeaderOf(cubin);
  std::ofstream file(temporary, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  file.write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
  file.close();
  if (file) fs::rename(temporary, to, error);
  if (!file || error) fs::remove(temporary, error);
}

}  // namespace sluice::cuda
