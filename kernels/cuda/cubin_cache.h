// Compiled kernels on disk, so that a machine compiles each once. A file is
//
//   8 bytes "SLUICECU", 8 bytes length, 8 bytes fingerprint of the cubin, cubin
//
// written under a temporary name and renamed. What is not of this form is as if
// it were not there. The folder can be removed at any time.
#ifndef SLUICE_KERNELS_CUDA_CUBIN_CACHE_H_
#define SLUICE_KERNELS_CUDA_CUBIN_CACHE_H_

#include <optional>
#include <string>

namespace sluice::cuda {

class CubinCache {
 public:
  // Under $XDG_CACHE_HOME or ~/.cache; empty where neither is known.
  static std::string DefaultFolder();

  // With an empty folder it keeps nothing.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // `key` is a file's name. What it does not have, or not whole, is nullopt.
  std::optional<std::string> Load(const std::string& key) const;
  // A disk that cannot be written only costs the next process the time.
  void Store(const std::string& key, const std::string& cubin) const;

 private:
  const std::string folder_;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_CUBIN_CACHE_H_
