// The tests of a folder are one program, and so are the library and what links
// it. Two types of one name in it, each in a file of its own, are two that the
// linker takes for one, without a word: objects of the one get the destructor
// of the other. What is in an anonymous namespace is its file's alone.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.h"

namespace {

namespace fs = std::filesystem;

// The types that a source defines and others could, with their namespaces. By
// lines, as clang-format leaves them.
std::vector<std::string> TypesOf(std::istream& source) {
  static const std::regex opens(
      R"((?:inline )?namespace(?: SLUICE_\w+)?(?: ([\w:]+))? \{.*)");
  static const std::regex closes(R"(\}  // namespace.*)");
  static const std::regex defines(
      R"((?:template <.*> )?(?:struct|class)(?: SLUICE_\w+)? (\w+))"
      R"((?: final)?(?: : .*)?(?: ?\{.*)?)");
  std::vector<std::string> types, within;
  std::smatch match;
  for (std::string line; std::getline(source, line);) {
    if (std::regex_match(line, match, opens)) {
      within.push_back(match[1]);
    } else if (std::regex_match(line, closes)) {
      if (!within.empty()) within.pop_back();
    } else if (line.find(';') == std::string::npos ||
               line.find('{') != std::string::npos) {
      const bool hidden =
          std::find(within.begin(), within.end(), "") != within.end();
      if (hidden || !std::regex_match(line, match, defines)) continue;
      types.push_back(
          fmt::format("{}::{}", fmt::join(within, "::"), match[1].str()));
    }
  }
  return types;
}

std::vector<std::string> TypesOf(const std::string& text) {
  std::istringstream source(text);
  return TypesOf(source);
}

TEST_CASE("types that several files could define are found") {
  CHECK(TypesOf("namespace a::b {\nstruct One {\n};\n}  // namespace a::b\n"
                "class Two final : public Base {\n") ==
        std::vector<std::string>{"a::b::One", "::Two"});
  CHECK(TypesOf("namespace a {\nnamespace {\nstruct One {};\n}  // namespace\n"
                "class SLUICE_EXPORT Three {\n}  // namespace a\n") ==
        std::vector<std::string>{"a::Three"});
  CHECK(TypesOf("namespace a {\ntemplate <typename T> class One\n"
                "    : public Base {\n") == std::vector<std::string>{"a::One"});
  CHECK(
      TypesOf("struct One;\n  struct Two {\nstruct Three* Made() {\n").empty());
}

TEST_CASE("no two files define a type of the same name") {
  const fs::path root = SLUICE_SOURCE_DIR;
  const std::set<std::string> sources = {".h", ".cc", ".cu"};
  std::map<std::string, std::set<std::string>> files;
  for (const char* folder : {"engine", "graph", "kernels", "io", "dist",
                             "models", "apps", "bench", "tests"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(root / folder)) {
      if (!sources.contains(entry.path().extension().string())) continue;
      std::ifstream source(entry.path());
      for (const std::string& type : TypesOf(source)) {
        files[type].insert(entry.path().lexically_relative(root).string());
      }
    }
  }
  CHECK(files.size() > 500);
  for (const auto& [type, in] : files) {
    if (in.size() == 1) continue;
    FAIL_CHECK(fmt::format("{} is defined in {}", type, fmt::join(in, ", ")));
  }
}

}  // namespace
