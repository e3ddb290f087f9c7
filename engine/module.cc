#include "engine/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

namespace sluice {
namespace {

constexpr const char* kFile = "libsluice_cuda.so";

// Of the module that is loaded; written before LoadModule first returns.
ModuleLibraries (*find_libraries)() = nullptr;

// The folders of the program and of the shared library that holds this code, if
// one does.
std::vector<std::filesystem::path> OwnFolders() {
  std::error_code error;
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::filesystem::path& file) {
    if (!file.has_parent_path()) return;
    const auto folder = file.parent_path();
    if (folders.empty() || folders[0] != folder) folders.push_back(folder);
  };
  add(std::filesystem::read_symlink("/proc/self/exe", error));
  Dl_info info;
  const auto here = reinterpret_cast<const void*>(&OwnFolders);
  // A program started through PATH is known by its bare name.
  if (dladdr(here, &info) != 0 && info.dli_fname != nullptr &&
      std::filesystem::path(info.dli_fname).has_parent_path()) {
    add(std::filesystem::canonical(info.dli_fname, error));
  }
  return folders;
}

Status Load() {
  SLUICE_ASSIGN_OR_RETURN(
      void* const module,
      OpenModule(kFile,
                 "it is neither beside the program nor installed; build it "
                 "with the preset cuda, or use /cpu:0"));
  const auto entry = reinterpret_cast<ModuleEntry>(dlsym(module, kModuleEntry));
  const ModuleHost host = {SLUICE_BUILD_ID,      &KernelTable::Global(),
                           RegisterAccelerators, RegisterDeviceGroups,
                           &find_libraries,      Note};
  const char* fault = entry == nullptr ? "it is not a module" : entry(host);
  if (fault == nullptr) return {};  // never unloaded: its kernels stay in use
  Status status = Unavailable(fmt::format("cannot use {}: {}", kFile, fault));
  dlclose(module);
  return status;
}

}  // namespace

Result<void*> OpenModule(const std::string& file, const std::string& absent) {
  std::vector<std::string> places;
  for (const std::filesystem::path& folder : OwnFolders()) {
    places.push_back((folder / file).string());
    places.push_back((folder.parent_path() / "lib" / file).string());
  }
  places.push_back(file);
  std::string why = absent;
  for (const std::string& place : places) {
    std::error_code error;
    const bool bare = place == file;
    if (!bare && !std::filesystem::exists(place, error)) continue;
    void* const module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module != nullptr) return module;
    // One that is there and does not load is worth reporting.
    if (!bare) {
      why = dlerror();
      break;
    }
  }
  return Unavailable(fmt::format("cannot load {}: {}", file, why));
}

Status LoadModule(DeviceType type) {
  if (type != DeviceType::kCuda) {
    return Unavailable(
        fmt::format("there is no module for {} devices", NameOf(type)));
  }
  static const Status* loaded = new Status(Load());  // threads may still ask
  return *loaded;
}

ModuleLibraries LibrariesOfModule(DeviceType type) {
  if (!LoadModule(type).ok() || find_libraries == nullptr) return {};
  return find_libraries();
}

}  // namespace sluice
