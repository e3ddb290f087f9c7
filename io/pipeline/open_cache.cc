#include "io/pipeline/open_cache.h"

#include <fmt/format.h>

#include <string>

#include "io/cache/disk_cache.h"

namespace sluice {

std::unique_ptr<ExampleCache> OpenCache(std::string_view who,
                                        const CacheOptions& options,
                                        std::string_view source) {
  if (options.max_bytes == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: got room for 0 bytes", who));
  }
  if (options.folder.empty()) return MemoryCache(options.max_bytes);
  if (options.key.empty()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: a cache in a folder, '{}', needs a key", who,
                            options.folder));
  }
  return DiskCache(
      options.folder, std::string(options.key).append("\n").append(source),
      options.max_bytes, FileSystem::Default(), options.keeps_more);
}

}  // namespace sluice
