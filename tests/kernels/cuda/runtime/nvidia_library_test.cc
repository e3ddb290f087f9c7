// Where NVIDIA's libraries are looked for, on layouts made by a generator: of
// virtual environments, conda's, Debian's and users' packages, with files that
// are libraries and files that are not.
#include "kernels/cuda/runtime/nvidia_library.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/library_folders.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::TemporaryFolder;

enum class File { kNone, kGood, kText, kCutOff, kOtherMachine, kOtherWidth };

void Write(const fs::path& path, File kind) {
  if (kind == File::kNone) return;
  fs::create_directories(path.parent_path());
  if (kind == File::kText) {
    std::ofstream(path) << "downloaded with an error\n";
    return;
  }
  fs::copy_file(SLUICE_STUB, path);
  const auto patch = [&](int at, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(byte);
  };
  if (kind == File::kCutOff) fs::resize_file(path, fs::file_size(path) / 8);
  if (kind == File::kOtherMachine) patch(18, '\x08');  // e_machine: MIPS
  if (kind == File::kOtherWidth) patch(4, 1);          // e_ident: 32 bits
}

const char* FaultOf(File kind) {
  switch (kind) {
    case File::kText:
      return "file too short";
    case File::kCutOff:
      return "its end is missing";
    default:
      return "it is of another architecture";
  }
}

// A machine with folders in the order of the search, each of which may hold a
// library.
struct Layout {
  explicit Layout(std::mt19937& random) : root(folder.path()) {
    const auto chance = [&](int percent) {
      return static_cast<int>(random() % 100) < percent;
    };
    const auto part = [&] {
      const char* const names[] = {"cu13", "cudnn", "cublas"};
      return fs::path("nvidia") / names[random() % 3] / "lib";
    };
    // Newest first; Debian's own packages have no version.
    const auto prefix = [&](const fs::path& at, bool debian) {
      for (const char* version : {"python3.13t", "python3.9", "python3"}) {
        const char* const kind = debian ? "dist-packages" : "site-packages";
        if (chance(60)) slots.push_back(at / "lib" / version / kind / part());
      }
    };
    if (chance(50)) {
      environment.pythonpath = Place("a") + "::" + Place("b") + ":/absent";
      slots.push_back(root / "a" / part());
      slots.push_back(root / "b" / part());
    }
    if (chance(50)) {
      environment.virtual_env = Place("venv");
      prefix(root / "venv", false);
      if (chance(50)) {  // as venv makes it
        fs::create_directories(root / "venv");
        fs::create_directory_symlink("lib", root / "venv" / "lib64");
      }
    }
    if (chance(50)) {
      environment.conda_prefix = Place("conda");
      prefix(root / "conda", false);
      slots.push_back(root / "conda" / "lib");
    }
    environment.path = "relative::" + Place("absent");
    if (chance(70)) {
      // A link into a prefix as Debian has it; a second one is not looked at.
      AddPython(root / "opt" / "bin");
      AddPython(root / "other" / "bin");
      AddPython(root / "usr" / "bin");
      fs::remove(root / "opt" / "bin" / "python3");
      fs::create_symlink(root / "usr" / "bin" / "python3",
                         root / "opt" / "bin" / "python3");
      environment.path += ":" + Place("opt/bin") + ":" + Place("other/bin");
      prefix(root / "opt", false);
      prefix(root / "usr" / "local", true);
      prefix(root / "usr", true);
      Write(root / "other/lib/python3.14/site-packages" / part() / kName,
            File::kGood);
    }
    environment.user_base = Place("home");
    prefix(root / "home", false);
    environment.cuda_home = chance(50) ? Place("cuda") : "";
    environment.toolkit = Place("toolkit");
    if (!environment.cuda_home.empty()) {
      slots.push_back(root / "cuda" / "lib64");
    }
    slots.push_back(root / "toolkit" / "lib64");
    const int fullness = static_cast<int>(random() % 60);
    for (const fs::path& slot : slots) {
      files.push_back(chance(fullness) ? static_cast<File>(random() % 6)
                                       : File::kNone);
      Write(slot / kName, files.back());
    }
  }

  std::string Place(const char* name) const { return (root / name).string(); }
  static void AddPython(const fs::path& bin) {
    fs::create_directories(bin);
    // Not to be run: it would be noticed.
    std::ofstream(bin / "python3") << "#!/bin/sh\nkill -9 $PPID\n";
    fs::permissions(bin / "python3", fs::perms::owner_all);
  }

  static constexpr const char* kName = "libsluice_nowhere.so.7";
  const TemporaryFolder folder;
  const fs::path root;
  LibraryEnvironment environment;
  std::vector<fs::path> slots;
  std::vector<File> files;  // of the slots
};

TEST_CASE("the first library that can be loaded is taken") {
  int found = 0, faulty = 0, absent = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Layout layout(random);
    size_t first_good = 0, first_bad = layout.slots.size();
    const auto is_good = [&](size_t i) {
      return layout.files[i] == File::kGood;
    };
    while (first_good < layout.slots.size() && !is_good(first_good)) {
      if (layout.files[first_good] != File::kNone) {
        first_bad = std::min(first_bad, first_good);
      }
      ++first_good;
    }
    const Result<void*> library =
        OpenLibrary(Layout::kName, layout.environment);
    if (first_good < layout.slots.size()) {
      ++found;
      REQUIRE_MESSAGE(library.ok(), library.status().message());
      CHECK_EQ(FileOfLibrary(*library),
               (layout.slots[first_good] / Layout::kName).string());
      dlclose(*library);
      continue;
    }
    REQUIRE_FALSE(library.ok());
    CHECK(library.status().code() == Code::kUnavailable);
    const std::string message = library.status().message();
    CHECK_EQ(message.find('\n'), std::string::npos);
    if (first_bad == layout.slots.size()) {
      ++absent;
      CHECK_EQ(message,
               "libsluice_nowhere.so.7 cannot be loaded: it is neither the "
               "system's, nor in Python's packages");
    } else {
      ++faulty;
      CHECK_EQ(message, "libsluice_nowhere.so.7 cannot be loaded: " +
                            (layout.slots[first_bad] / Layout::kName).string() +
                            ": " + FaultOf(layout.files[first_bad]));
    }
  }
  CHECK(found > 20);
  CHECK(faulty > 20);
  CHECK(absent > 20);
}

TEST_CASE("the system's library comes before all others") {
  const TemporaryFolder folder;
  const fs::path lib = fs::path(folder.path()) / "nvidia" / "math" / "lib";
  Write(lib / "libm.so.6", File::kGood);
  const LibraryEnvironment environment = {.pythonpath = folder.path()};
  REQUIRE_EQ(LibraryFolders(environment).front(), lib);
  const Result<void*> library = OpenLibrary("libm.so.6", environment);
  REQUIRE(library.ok());
  CHECK_FALSE(FileOfLibrary(*library).starts_with(folder.path()));
  CHECK(dlsym(*library, "cos") != nullptr);
}

TEST_CASE("a library that lacks another one names it") {
  // One of the right name, whose text says that it needs libc.so.8.
  const TemporaryFolder folder;
  const fs::path lib = fs::path(folder.path()) / "nvidia" / "cudnn" / "lib";
  Write(lib / "libsluice_lacks.so", File::kGood);
  std::fstream file(lib / "libsluice_lacks.so",
                    std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  const size_t at = bytes.find("libc.so.6");
  REQUIRE(at != std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(at));
  file << "libc.so.8";
  file.close();
  const Result<void*> library =
      OpenLibrary("libsluice_lacks.so", {.pythonpath = folder.path()});
  REQUIRE_FALSE(library.ok());
  CHECK(Contains(library.status().message(), "libc.so.8"));
}

}  // namespace
}  // namespace sluice::cuda
