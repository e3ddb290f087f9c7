// The folders in which NVIDIA's libraries lie, beside those that the system's
// loader searches: in Python's packages, where PyTorch brings all of them and
// where they often are alone, and in the CUDA toolkit.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_LIBRARY_FOLDERS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_LIBRARY_FOLDERS_H_

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::cuda {

// The variables of the environment that decide where libraries are looked for,
// each empty where it is not set.
struct LibraryEnvironment {
  std::string pythonpath;    // PYTHONPATH
  std::string virtual_env;   // VIRTUAL_ENV
  std::string conda_prefix;  // CONDA_PREFIX
  std::string path;          // PATH
  std::string user_base;     // PYTHONUSERBASE, or HOME/.local
  std::string cuda_home;     // CUDA_HOME
  std::string toolkit = "/usr/local/cuda";

  // Empty but for the toolkit in a program that has more rights than its user.
  static LibraryEnvironment OfProcess();
};

// The folders that there are, each once, in the order of the search:
//   nvidia/*/lib in the entries of PYTHONPATH,
//   in the packages of VIRTUAL_ENV, and of CONDA_PREFIX, whose own lib it is,
//     too,
//   in those of the first python3 in PATH, by the place of its file and by what
//     that is a link to; it is not run, and of several versions' packages below
//     one prefix the newest come first,
//   in those that the user installed,
//   then lib64 and lib of CUDA_HOME and of the toolkit.
std::vector<std::filesystem::path> LibraryFolders(
    const LibraryEnvironment& environment);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_LIBRARY_FOLDERS_H_
