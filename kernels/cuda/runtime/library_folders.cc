#include "kernels/cuda/runtime/library_folders.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> PartsOf(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// 12 of python3.12 and python3.12t, -1 of python3, which is Debian's own.
int MinorVersion(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t dot = name.find('.');
  return dot == std::string::npos ? -1 : std::atoi(name.c_str() + dot + 1);
}

class Collector {
 public:
  void Add(const fs::path& folder) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) return;
    const fs::path real = fs::canonical(folder, error);  // lib64 may be lib
    if (!error && known_.insert(real).second) folders_.push_back(folder);
  }
  // A folder that Python imports from.
  void AddPackages(const fs::path& folder) {
    for (const fs::path& part : FoldersIn(folder / "nvidia")) {
      Add(part / "lib");
    }
  }
  // What lib/python3.x is below.
  void AddPrefix(const fs::path& prefix) {
    for (const char* lib : {"lib", "lib64"}) {
      std::vector<fs::path> versions = FoldersIn(prefix / lib);
      std::erase_if(versions, [](const fs::path& folder) {
        return !folder.filename().string().starts_with("python3");
      });
      std::stable_sort(versions.begin(), versions.end(),
                       [](const fs::path& a, const fs::path& b) {
                         return MinorVersion(a) > MinorVersion(b);
                       });
      for (const fs::path& version : versions) {
        AddPackages(version / "site-packages");
        AddPackages(version / "dist-packages");
      }
    }
  }
  // `python` is in the bin of its prefix.
  void AddInterpreter(const fs::path& python) {
    const fs::path prefix = python.parent_path().parent_path();
    AddPrefix(prefix / "local");  // Debian's /usr has pip's packages there
    AddPrefix(prefix);
  }
  std::vector<fs::path> Take() { return std::move(folders_); }

 private:
  std::set<fs::path> known_;
  std::vector<fs::path> folders_;
};

}  // namespace

LibraryEnvironment LibraryEnvironment::OfProcess() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = ::secure_getenv(name);
    return value == nullptr ? "" : value;
  };
  LibraryEnvironment environment = {.pythonpath = variable("PYTHONPATH"),
                                    .virtual_env = variable("VIRTUAL_ENV"),
                                    .conda_prefix = variable("CONDA_PREFIX"),
                                    .path = variable("PATH"),
                                    .user_base = variable("PYTHONUSERBASE"),
                                    .cuda_home = variable("CUDA_HOME")};
  if (environment.user_base.empty() && !variable("HOME").empty()) {
    environment.user_base = variable("HOME") + "/.local";
  }
  return environment;
}

std::vector<fs::path> LibraryFolders(const LibraryEnvironment& environment) {
  Collector found;
  for (const std::string& folder : PartsOf(environment.pythonpath)) {
    found.AddPackages(folder);
  }
  if (!environment.virtual_env.empty()) {
    found.AddPrefix(environment.virtual_env);
  }
  if (!environment.conda_prefix.empty()) {
    found.AddPrefix(environment.conda_prefix);
    found.Add(fs::path(environment.conda_prefix) / "lib");
  }
  for (const std::string& folder : PartsOf(environment.path)) {
    const fs::path python = fs::path(folder) / "python3";
    if (!python.is_absolute() || ::access(python.c_str(), X_OK) != 0) continue;
    found.AddInterpreter(python);
    std::error_code error;
    const fs::path real = fs::canonical(python, error);
    if (!error) found.AddInterpreter(real);
    break;
  }
  if (!environment.user_base.empty()) found.AddPrefix(environment.user_base);
  for (const std::string& toolkit :
       {environment.cuda_home, environment.toolkit}) {
    if (toolkit.empty()) continue;
    found.Add(fs::path(toolkit) / "lib64");
    found.Add(fs::path(toolkit) / "lib");
  }
  return found.Take();
}

}  // namespace sluice::cuda
