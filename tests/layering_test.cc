// The rules of the source tree: which room may use which, by includes and by
// what its objects need defined, what a public header may include, who may
// print, how long a file may be, and what lies at the top level.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/rooms.h"
#include "tests/sources.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using sluice::testing::Allows;
using sluice::testing::CodeOf;
using sluice::testing::ForEachSource;
using sluice::testing::MayUse;
using sluice::testing::ReadText;
using sluice::testing::RoomOf;
using sluice::testing::Root;
using sluice::testing::Says;
using sluice::testing::TopOf;
using sluice::testing::Unrestricted;
using Lines = std::vector<std::string>;

// What is declared in one room and defined in another that it may not use, each
// with its reason.
const std::map<std::string, std::string> kDefinedAbove = {
    {"_ZN6sluice11KernelTable6GlobalEv",
     "KernelTable::Global registers the kernels that are built in. A static "
     "library keeps only objects that something needs: the table is that."},
};
const std::set<std::string> kPublicFolders = {"engine", "graph", "io",
                                              "models"};

// What a public header may include of the system's.
constexpr const char* kPosix = "pthread.h";

// The library prints nothing, leaves signals alone and knows no command line:
// models/cli does.
const std::set<std::string> kSilent = {"engine", "kernels", "graph",
                                       "io",     "dist",    "models"};
constexpr const char* kCommandLine = "models/cli";
constexpr const char* kAborts = "engine/status.cc";  // it says why
// As whole words: "snprintf(" prints nothing.
constexpr const char* kVoices[] = {
    "std::cout", "std::cerr",    "std::clog",  "printf(",
    "fprintf(",  "vprintf(",     "puts(",      "putchar(",
    "perror(",   "fputs(",       "fputc(",     "fwrite(",
    "print(",    "std::signal(", "sigaction(", "spdlog::"};
constexpr const char* kCommandLineLibrary = "CLI/";

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
    "deploy",
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
  const std::string room = RoomOf(path);
  const auto rules = MayUse().find(room);
  const bool restricted = rules != MayUse().end();
  const bool public_header =
      path.ends_with(".h") && kPublicFolders.contains(TopOf(room));
  for (const Include& include : IncludesOf(text)) {
    const std::string target = RoomOf(include.name);
    if (include.quoted && target.empty()) {
      found.push_back(fmt::format("{}: \"{}\" is no path from the root", path,
                                  include.name));
    } else if (include.quoted && restricted && target != room &&
               !Allows(rules->second, target)) {
      found.push_back(fmt::format("{}: {} may not include \"{}\"", path, room,
                                  include.name));
    }
    if (kSilent.contains(TopOf(room)) && room != kCommandLine &&
        include.name.starts_with(kCommandLineLibrary)) {
      found.push_back(fmt::format("{}: <{}>, which is for {}", path,
                                  include.name, kCommandLine));
    }
    // The C++ library's own headers have neither a dot nor a slash.
    if (public_header && include.name.ends_with(".pb.h")) {
      found.push_back(fmt::format("{}: a public header includes \"{}\"", path,
                                  include.name));
    } else if (public_header && !include.quoted && include.name != kPosix &&
               include.name.find_first_of("./") != std::string::npos) {
      found.push_back(
          fmt::format("{}: a public header includes <{}>", path, include.name));
    }
  }
  if (room.starts_with("kernels/cuda") && path != kLaunchHeader) {
    for (const char* bypass : {"<<<", "__shared__", "cudaLaunch"}) {
      if (text.find(bypass) != std::string::npos) {
        found.push_back(fmt::format("{}: {}, which is for {}", path, bypass,
                                    kLaunchHeader));
      }
    }
  }
  const std::string code = CodeOf(text);
  if (kSilent.contains(TopOf(room)) && room != kCommandLine &&
      path != kAborts) {
    for (const char* voice : kVoices) {
      if (Says(code, voice)) {
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

TEST_CASE("every source keeps the rules of its room") {
  Lines found;
  const int files =
      ForEachSource([&](const std::string& path, const std::string& text) {
        const Lines in_file = Violations(path, text);
        found.insert(found.end(), in_file.begin(), in_file.end());
        if (!Unrestricted().contains(path.substr(0, path.find('/'))) &&
            !MayUse().contains(fs::path(path).parent_path().string())) {
          found.push_back(path + ": its folder is no room");
        }
      });
  CHECK(files > 500);
  CHECK_MESSAGE(found.empty(), fmt::format("{}", fmt::join(found, "\n")));
}

// --- Definitions -------------------------------------------------------------

// What the objects of the sources need and define: lines of nm -P -A.
struct Symbols {
  std::map<std::string, std::string> defined;           // source by symbol
  std::map<std::string, std::set<std::string>> needed;  // symbols by source

  // "…/sluice.dir/engine/kernel.cc.o: _ZN6sluice… T 0 0", or, with
  // SLUICE_UNITY, "…/sluice.dir/Unity/unity_engine_cxx.cxx.o: …"
  void Add(const std::string& line) {
    std::istringstream words(line);
    std::string object, symbol, kind;
    if (!(words >> object >> symbol >> kind)) return;
    const size_t begin = object.find(".dir/"), end = object.rfind(".o:");
    if (begin == std::string::npos || end == std::string::npos) return;
    std::string source = fs::path(object.substr(begin + 5, end - begin - 5))
                             .lexically_normal()
                             .string();
    const std::string_view joined = "Unity/unity_", behind = "_cxx.cxx";
    if (source.starts_with(joined) && source.ends_with(behind)) {
      source = source.substr(joined.size(),
                             source.size() - joined.size() - behind.size()) +
               "/*";
    }
    if (kind == "U") needed[source].insert(symbol);
    // Weak ones, of templates and inline functions, are everybody's.
    if (std::string_view("TDBRG").find(kind) != std::string_view::npos) {
      defined[symbol] = source;
    }
  }
  Lines Violations() const {
    Lines found;
    for (const auto& [user, symbols] : needed) {
      const auto rules = MayUse().find(RoomOf(user));
      if (rules == MayUse().end()) continue;
      for (const std::string& symbol : symbols) {
        const auto definition = defined.find(symbol);
        if (definition == defined.end() || kDefinedAbove.contains(symbol)) {
          continue;
        }
        const std::string room = RoomOf(definition->second);
        if (room == rules->first || Allows(rules->second, room)) continue;
        found.push_back(fmt::format("{} needs {}, which {} defines", user,
                                    symbol, definition->second));
      }
    }
    return found;
  }
};

TEST_CASE("no object needs what a room defines that it may not use") {
  Symbols symbols;
  FILE* nm = popen("xargs -d '\\n' nm -P -A < '" SLUICE_OBJECTS "'", "r");
  REQUIRE(nm != nullptr);
  std::string line;
  for (int c; (c = std::fgetc(nm)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    symbols.Add(line);
    line.clear();
  }
  CHECK(pclose(nm) == 0);
  CHECK(symbols.defined.size() > 1000);
  for (const auto& [source, needs] : symbols.needed) {
    const bool generated = source.ends_with(".pb.cc");
    CHECK_MESSAGE((generated || MayUse().contains(RoomOf(source))), source);
  }
  for (const auto& [symbol, reason] : kDefinedAbove) {
    CHECK_MESSAGE(symbols.defined.contains(symbol), symbol);
  }
  const Lines found = symbols.Violations();
  CHECK_MESSAGE(found.empty(), fmt::format("{}", fmt::join(found, "\n")));
}

TEST_CASE("a definition in a room above is found") {
  Symbols symbols;
  symbols.Add("x/sluice.dir/engine/a.cc.o: F U");
  symbols.Add("x/sluice.dir/graph/b.cc.o: F U");
  symbols.Add("x/sluice.dir/graph/c.cc.o: F T 0 0");
  CHECK(symbols.Violations() ==
        Lines{"engine/a.cc needs F, which graph/c.cc defines"});
  symbols.Add("x/sluice.dir/Unity/unity_graph/passes_cxx.cxx.o: G U");
  symbols.Add("x/sluice.dir/graph/compile/e.cc.o: G T 0 0");
  CHECK(symbols.Violations().size() == 2);
}

TEST_CASE("the top level holds only what the design names") {
  const Lines found = StrangeEntries(Root(), ReadText(Root() / ".gitignore"));
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
  CHECK(Violations("models/a.cc", "#include \"io/sources/idx.h\"\n").empty());
  CHECK(Violations("apps/a.cc", "#include \"kernels/cpu/b.h\"\n").empty());
}

TEST_CASE("an include against the rooms of a folder is found") {
  const auto count = [](const char* path, const char* included) {
    return Violations(path, fmt::format("#include \"{}\"\n", included)).size();
  };
  CHECK(count("engine/a.cc", "engine/runtime/plan.h") == 1);
  CHECK(count("engine/runtime/a.cc", "engine/device.h") == 0);
  CHECK(count("graph/passes/a.cc", "graph/compile/evaluate.h") == 1);
  CHECK(count("graph/compile/a.cc", "graph/session/session.h") == 1);
  CHECK(count("graph/session/a.cc", "graph/compile/lower.h") == 0);
  CHECK(count("kernels/cpu/gemm/a.cc", "kernels/cpu/conv/direct_conv.h") == 1);
  CHECK(count("kernels/cpu/conv/a.cc", "kernels/cpu/gemm/gemm.h") == 0);
  CHECK(count("kernels/cuda/device/a.h", "kernels/cuda/ops/reduce/reduce.h") ==
        1);
  CHECK(count("kernels/cuda/ops/a.cc", "kernels/cuda/vendor/cudnn.h") == 1);
  CHECK(count("models/train/a.cc", "models/cli/console.h") == 1);
  CHECK(count("models/zoo/a.cc", "models/train/trainer.h") == 1);
  CHECK(count("models/cli/a.cc", "models/train/trainer.h") == 0);
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
  CHECK(Violations("kernels/cuda/vendor/a.cc", "fputs(a, stderr);\n").size() ==
        1);
  for (const char* voice : {"printf(", "std::printf(", "puts(", "perror(",
                            "putchar(", "spdlog::info("}) {
    CHECK(Violations("engine/a.cc", fmt::format("  {}a);\n", voice)).size() ==
          1);
  }
  CHECK(Violations("io/a.cc", "snprintf(a, 1, b);  // printf(a)\n").empty());
  CHECK(Violations("models/cli/a.cc", "fmt::print(\"{}\", 1);\n").empty());
}

TEST_CASE("a library that parses a command line is found") {
  const std::string text = "#include <CLI/CLI.hpp>\n";
  CHECK(Violations("models/train/a.cc", text).size() == 1);
  CHECK(Violations("dist/net/a.cc", text).size() == 1);
  CHECK(Violations("models/cli/a.cc", text).empty());
  CHECK(Violations("apps/sluice/a.cc", text).empty());
}

TEST_CASE("a file that is too long is found") {
  CHECK(Violations("io/a.cc", std::string(kMaximumLines, '\n')).empty());
  CHECK(Violations("io/a.cc", std::string(kMaximumLines + 1, '\n')).size() ==
        1);
}

TEST_CASE("a strange top-level entry is found") {
  const sluice::testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "engine");
  fs::create_directories(root / "build");
  CHECK(StrangeEntries(root, "/build/\n").empty());
  fs::create_directories(root / "utils");
  CHECK(StrangeEntries(root, "/build/\n") == Lines{"utils"});
}

}  // namespace
