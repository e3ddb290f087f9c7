// Files in the user's cache folder that save time when they are there: they
// keep what was compiled or measured once. They can be removed at any time.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_USER_CACHE_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_USER_CACHE_H_

#include <filesystem>
#include <string_view>

namespace sluice::cuda {

// $XDG_CACHE_HOME/sluice or ~/.cache/sluice; empty without either.
std::filesystem::path UserCacheFolder();

// Writes the file under a temporary name and renames it, so that processes
// which write it at once each leave a whole one. Where that fails nothing
// changes, and stderr is told, once. Does nothing for an empty path.
// Thread-safe.
void WriteCacheFile(const std::filesystem::path& path, std::string_view bytes);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_USER_CACHE_H_
