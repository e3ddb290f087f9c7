// Opens what CacheOptions say. Internal to io.
#ifndef SLUICE_IO_PIPELINE_OPEN_CACHE_H_
#define SLUICE_IO_PIPELINE_OPEN_CACHE_H_

#include <memory>
#include <string_view>

#include "io/cache/example_cache.h"
#include "io/pipeline/dataset.h"

namespace sluice {

// `source` tells apart what has the same key. Throws Error(kInvalidArgument),
// which names `who`, for no room and for a folder without a key.
std::unique_ptr<ExampleCache> OpenCache(std::string_view who,
                                        const CacheOptions& options,
                                        std::string_view source);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_OPEN_CACHE_H_
