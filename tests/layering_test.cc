// The rules of the source tree: which folder may include which, what a public
// header may include, how long a file may be, and what lies at the top level.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// What each folder may include beside itself; the longest matching prefix of
// a path decides. Folders without an entry here may include anything.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"engine", {}},
    {"kernels/cpu", {"engine"}},
    {"kernels/cuda", {"engine"}},
    {"graph", {"engine"}},
    {"io", {"engine", "graph"}},
    {"dist", {"engine", "graph", "io"}},
    {"models", {"engine", "graph", "io", "dist"}},
};
// Rooms of a folder that may include only some of its other rooms. What lies
// beside the rooms is for all of them.
const std::map<std::string, std::set<std::string>> kRoomMayInclude = {
    {"models/nn", {}},
    {"models/optim", {"models/nn"}},
    {"models/train", {"models/nn", "models/optim"}},
    {"models/zoo", {"models/nn"}},
};
const std::set<std::string> kUnrestricted = {"apps", "tests", "bench"};
const std::set<std::string> kPublicFolders = {"engine", "graph", "io",
                                              "models"};

// The library prints nothing and leaves signals alone: models/cli does both.
// (The engine says why it aborts, CUDA's part which library is missing.)
const std::set<std::string> kSilent = {"graph", "io", "models"};
constexpr const char* kCommandLine = "models/cli";
constexpr const char* kVoices[] = {
    "std::cout",   "std::cerr", "std::clog", "std::printf",  "fprintf(",
    "fmt::print(", "fputs(",    "fwrite(",   "std::signal(", "sigaction("};

// Files that may pass kMaximumLines, each with its reason.
constexpr size_t kMaximumLines = 500;
const std::map<std::string, std::string> kLongFiles = {
    {"engine/semantics/scalar.h",
     "the function of every elementwise op, one text"},
};

// Alone launches kernels and declares shared memory, so that the emulation of
// CUDA (tests/kernels/cuda/emulation) can take the place of both.
constexpr const char* kLaunchHeader = "kernels/cuda/device/launch.h";

const std::set<std::string> kTopLevel = {
    "engine",
    "kernels",
    "graph",
    "io",
    "dist",
    "models",
    "apps",
    "tests",
    "bench",
    "cmake",
    "docs",
    "scripts",
    ".ci",
    ".git",
    "README.md",
    "LICENSE",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CMakeLists.txt",
    "CMakePresets.json",
    ".clang-format",
    ".clang-tidy",
    ".gitignore",
    ".gitattributes",
    ".editorconfig",
};

// "graph/ops/math.cc" is of the folder "graph", "kernels/cpu/gemm/gemm.h" of
// "kernels/cpu"; empty for a path of no known folder.
std::string FolderOf(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return "";
  std::string top(path.substr(0, slash));
  if (kUnrestricted.contains(top) || kMayInclude.contains(top)) return top;
  const size_t second = path.find('/', slash + 1);
  const std::string two(path.substr(0, second));
  return kMayInclude.contains(two) ? two : "";
}

// "models/train" of "models/train/hooks.h"; empty for a path of no room.
std::string RoomOf(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return "";
  const size_t second = path.find('/', slash + 1);
  return second == std::string_view::npos ? ""
                                          : std::string(path.substr(0, second));
}

// Whether a file of one room may include one of another.
bool RoomMayInclude(const std::string& room, const std::string& target) {
  const auto rule = kRoomMayInclude.find(room);
  return rule == kRoomMayInclude.end() || target.empty() || target == room ||
         FolderOf(target + "/") != FolderOf(room + "/") ||
         rule->second.contains(target);
}

struct Include {
  bool quoted;
  std::string name;
};

// The includes of a source text, in order.
std::vector<Include> IncludesOf(const std::string& text) {
  std::vector<Include> includes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '#') continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) {
      continue;
    }
    const size_t open = line.find_first_of("\"<", at);
    if (open == std::string::npos) continue;
    const bool quoted = line[open] == '"';
    const size_t close = line.find(quoted ? '"' : '>', open + 1);
    includes.push_back({quoted, line.substr(open + 1, close - open - 1)});
  }
  return includes;
}

// Everything wrong with one file, a line each. `path` is relative to the root.
Lines Violations(const std::string& path, const std::string& text) {
  Lines found;
  const std::string folder = FolderOf(path);
  const bool restricted = kMayInclude.contains(folder);
  const bool public_header =
      path.ends_with(".h") && kPublicFolders.contains(folder);
  for (const Include& include : IncludesOf(text)) {
    const std::string target = FolderOf(include.name);
    if (include.quoted && target.empty()) {
      found.push_back(fmt::format("{}: \"{}\" is no path from the root", path,
                                  include.name));
    } else if (include.quoted && restricted && target != folder &&
               !kMayInclude.at(folder).contains(target)) {
      found.push_back(fmt::format("{}: {} may not include \"{}\"", path, folder,
                                  include.name));
    }
    if (include.quoted && !RoomMayInclude(RoomOf(path), RoomOf(include.name))) {
      found.push_back(fmt::format("{}: {} may not include \"{}\"", path,
                                  RoomOf(path), include.name));
    }
    // The C++ library's own headers have neither a dot nor a slash.
    if (public_header && include.name.ends_with(".pb.h")) {
      found.push_back(fmt::format("{}: a public header includes \"{}\"", path,
                                  include.name));
    } else if (public_header && !include.quoted &&
               include.name.find_first_of("./") != std::string::npos) {
      found.push_back(
          fmt::format("{}: a public header includes <{}>", path, include.name));
    }
  }
  if (folder == "kernels/cuda" && path != kLaunchHeader) {
    for (const char* bypass : {"<<<", "__shared__", "cudaLaunch"}) {
      if (text.find(bypass) != std::string::npos) {
        found.push_back(fmt::format("{}: {}, which is for {}", path, bypass,
                                    kLaunchHeader));
      }
    }
  }
  if (kSilent.contains(folder) && RoomOf(path) != kCommandLine) {
    for (const char* voice : kVoices) {
      if (text.find(voice) != std::string::npos) {
        found.push_back(
            fmt::format("{}: {}, which is for {}", path, voice, kCommandLine));
      }
    }
  }
  const size_t lines = std::count(text.begin(), text.end(), '\n');
  if (lines > kMaximumLines && !kLongFiles.contains(path)) {
    found.push_back(
        fmt::format("{}: {} lines; what is its second subject?", path, lines));
  }
  return found;
}

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".cu"};
  return kExtensions.contains(path.extension().string());
}

// Top-level names that git ignores, such as the build folder.
std::set<std::string> IgnoredNames(const std::string& gitignore) {
  std::set<std::string> names;
  std::istringstream lines(gitignore);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('/')) line.erase(0, 1);
    if (line.ends_with('/')) line.pop_back();
    if (!line.empty()) names.insert(line);
  }
  return names;
}

Lines StrangeEntries(const fs::path& root, const std::string& gitignore) {
  Lines found;
  const std::set<std::string> ignored = IgnoredNames(gitignore);
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!kTopLevel.contains(name) && !ignored.contains(name)) {
      found.push_back(name);
    }
  }
  return found;
}

const fs::path kRoot = SLUICE_SOURCE_DIR;

TEST_CASE("every source keeps the rules of its folder") {
  Lines found;
  int files = 0;
  std::set<std::string> folders = kUnrestricted;
  for (const auto& [folder, unused] : kMayInclude) folders.insert(folder);
  for (const std::string& folder : folders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      const std::string path = entry.path().lexically_relative(kRoot).string();
      const Lines in_file = Violations(path, ReadText(entry.path()));
      found.insert(found.end(), in_file.begin(), in_file.end());
      ++files;
    }
  }
  CHECK(files > 20);
  CHECK_MESSAGE(found.empty(), fmt::format("{}", fmt::join(found, "\n")));
}

TEST_CASE("the top level holds only what the design names") {
  const Lines found = StrangeEntries(kRoot, ReadText(kRoot / ".gitignore"));
  CHECK_MESSAGE(found.empty(), fmt::format("{}", fmt::join(found, " ")));
}

TEST_CASE("an include against the layers is found") {
  CHECK(Violations("engine/a.cc", "#include \"engine/b.h\"\n").empty());
  CHECK(Violations("engine/a.cc", "#include \"graph/graph.h\"\n").size() == 1);
  CHECK(Violations("graph/ops/a.cc", "#include \"kernels/cpu/b.h\"\n").size() ==
        1);
  CHECK(Violations("kernels/cpu/a.cc", "  # include \"graph/graph.h\"\n")
            .size() == 1);
  CHECK(Violations("kernels/cpu/simd/a.cc", "#include \"kernels/cuda/b.h\"\n")
            .size() == 1);
  CHECK(Violations("kernels/cuda/a.cu", "#include \"graph/op.h\"\n").size() ==
        1);
  CHECK(Violations("kernels/cuda/a.cu",
                   "#include \"kernels/cpu/reduce/reduce.h\"\n")
            .size() == 1);
  CHECK(Violations("kernels/cuda/a.cu",
                   "#include \"tests/kernels/cuda/emulation/fiber.h\"\n")
            .size() == 1);
  CHECK(Violations(
            "kernels/cuda/a.cu",
            "#include <cuda_fp16.h>\n#include \"engine/semantics/scalar.h\"\n")
            .empty());
  CHECK(Violations("io/a.cc", "#include \"models/nn/layers.h\"\n").size() == 1);
  CHECK(Violations("models/a.cc", "#include \"kernels/cpu/b.h\"\n").size() ==
        1);
  CHECK(Violations("models/a.cc", "#include \"io/idx.h\"\n").empty());
  CHECK(Violations("apps/a.cc", "#include \"kernels/cpu/b.h\"\n").empty());
}

TEST_CASE("an include against the rooms of a folder is found") {
  CHECK(
      Violations("models/train/a.cc", "#include \"models/cli/b.h\"\n").size() ==
      1);
  CHECK(Violations("models/optim/a.cc", "#include \"models/train/b.h\"\n")
            .size() == 1);
  CHECK(
      Violations("models/zoo/a.cc", "#include \"models/train/b.h\"\n").size() ==
      1);
  CHECK(Violations("models/train/a.cc",
                   "#include \"models/optim/b.h\"\n"
                   "#include \"models/run_context.h\"\n"
                   "#include \"graph/ops/b.h\"\n")
            .empty());
  CHECK(
      Violations("models/cli/a.cc", "#include \"models/train/b.h\"\n").empty());
}

TEST_CASE("an include that is no path from the root is found") {
  CHECK(Violations("engine/a.cc", "#include \"b.h\"\n").size() == 1);
  CHECK(Violations("engine/a.cc", "#include \"../io/idx.h\"\n").size() == 1);
  CHECK(Violations("tests/a_test.cc", "#include \"b.h\"\n").size() == 1);
}

TEST_CASE("a third-party include in a public header is found") {
  CHECK(Violations("engine/a.h", "#include <vector>\n").empty());
  CHECK(Violations("engine/a.h", "#include <fmt/format.h>\n").size() == 1);
  CHECK(Violations("io/a.h", "#include <zlib.h>\n").size() == 1);
  CHECK(Violations("io/a.h", "#include \"io/proto/event.pb.h\"\n").size() == 1);
  CHECK(Violations("engine/a.cc", "#include <fmt/format.h>\n").empty());
  CHECK(Violations("kernels/cpu/a.h", "#include <Eigen/Core>\n").empty());
}

TEST_CASE("a CUDA kernel launched or sharing memory by other ways is found") {
  CHECK(Violations("kernels/cuda/a.cu", "kernel<<<1, 32>>>();\n").size() == 1);
  CHECK(Violations("kernels/cuda/a.cu", "__shared__ int x;\n").size() == 1);
  CHECK(Violations(kLaunchHeader, "cudaLaunchKernelEx(...);\n").empty());
}

TEST_CASE("a library that prints or takes signals is found") {
  CHECK(Violations("models/train/a.cc", "fmt::print(\"{}\", 1);\n").size() ==
        1);
  CHECK(Violations("io/a.cc", "std::cerr << 1;\n").size() == 1);
  CHECK(Violations("graph/a.cc", "std::signal(SIGINT, f);\n").size() == 1);
  CHECK(Violations("models/cli/a.cc", "fmt::print(\"{}\", 1);\n").empty());
}

TEST_CASE("a file that is too long is found") {
  CHECK(Violations("io/a.cc", std::string(kMaximumLines, '\n')).empty());
  CHECK(Violations("io/a.cc", std::string(kMaximumLines + 1, '\n')).size() ==
        1);
}

TEST_CASE("a strange top-level entry is found") {
  const fs::path root = fs::temp_directory_path() / "sluice_layering_test";
  fs::remove_all(root);
  fs::create_directories(root / "engine");
  fs::create_directories(root / "build");
  CHECK(StrangeEntries(root, "/build/\n").empty());
  fs::create_directories(root / "utils");
  CHECK(StrangeEntries(root, "/build/\n") == Lines{"utils"});
  fs::remove_all(root);
}

}  // namespace
