// Compiled kernels on disk, so that a machine compiles each once. A file is
//
//   8 bytes "SLUICECU", 8 bytes length, 8 bytes fingerprint of the cubin, cubin
//
// A file that is not of this form counts as missing.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_CUBIN_CACHE_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_CUBIN_CACHE_H_

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace sluice::cuda {

class CubinCache {
 public:
  // With an empty folder it keeps nothing.
  explicit CubinCache(std::filesystem::path folder)
      : folder_(std::move(folder)) {}

  // Returns the cubin of `key`, a file's name; nullopt where it is missing or
  // not whole.
  std::optional<std::string> Load(const std::string& key) const;
  // Keeps a cubin. Where it cannot be written the next process compiles anew
  // (user_cache.h).
  void Store(const std::string& key, const std::string& cubin) const;

 private:
  const std::filesystem::path folder_;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_CUBIN_CACHE_H_
