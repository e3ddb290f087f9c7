#include "kernels/cuda/runtime/nvidia_library.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

// "" on success. `name` with a slash in it is that file alone.
std::string Open(const std::string& name, void*& library) {
  library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return "";
  const char* const why = dlerror();
  return why == nullptr ? "no reason given" : why;
}

template <typename T>
bool ReadAt(std::ifstream& file, uint64_t offset, T& into) {
  file.seekg(static_cast<std::streamoff>(offset));
  return !!file.read(reinterpret_cast<char*>(&into), sizeof(into));
}

// What is wrong with a file of which the loader says that it is absent, though
// it is of another architecture, or which it dies of, since its end is missing.
// "" where it is for the loader to judge.
std::string FaultOf(const fs::path& path) {
  using Header = ElfW(Ehdr);
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  std::ifstream self("/proc/self/exe", std::ios::binary);
  Header header = {}, own = {};
  if (error || !ReadAt(file, 0, header) || !ReadAt(self, 0, own) ||
      std::string_view(reinterpret_cast<char*>(header.e_ident), SELFMAG) !=
          ELFMAG) {
    return "";
  }
  if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
      header.e_machine != own.e_machine) {
    return "it is of another architecture";
  }
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part = {};
    if (!ReadAt(file, header.e_phoff + i * sizeof(part), part) ||
        (part.p_type == PT_LOAD &&
         (part.p_offset > bytes || part.p_filesz > bytes - part.p_offset))) {
      return "its end is missing";
    }
  }
  return "";
}

std::string OpenFile(const fs::path& path, void*& library) {
  const std::string fault = FaultOf(path);
  if (!fault.empty()) return path.string() + ": " + fault;
  return Open(path.string(), library);
}

}  // namespace

Result<void*> OpenLibrary(const std::string& name,
                          const LibraryEnvironment& environment) {
  void* library = nullptr;
  std::string why = Open(name, library);
  if (library != nullptr) return library;
  // The first file that there is says more than the loader, which found none.
  bool absent = why.starts_with(name + ": cannot open shared object file: No ");
  if (absent) why = "it is neither the system's, nor in Python's packages";
  if (name.find('/') == std::string::npos) {
    for (const fs::path& folder : LibraryFolders(environment)) {
      std::error_code error;
      if (!fs::exists(folder / name, error)) continue;
      const std::string fault = OpenFile(folder / name, library);
      if (library != nullptr) return library;
      if (absent) why = fault;
      absent = false;
    }
  }
  return Unavailable(fmt::format("{} cannot be loaded: {}", name, why));
}

Result<void*> OpenAnyLibrary(const std::vector<std::string>& names) {
  Result<void*> first = OpenLibrary(names.front());
  if (first.ok()) return first;
  for (size_t i = 1; i < names.size(); ++i) {
    Result<void*> library = OpenLibrary(names[i]);
    if (library.ok()) return library;
  }
  return first;
}

std::string FileOfLibrary(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return "";
  std::error_code error;
  const fs::path path = fs::absolute(map->l_name, error);
  return error ? map->l_name : path.lexically_normal().string();
}

}  // namespace sluice::cuda
