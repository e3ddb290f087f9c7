// Each variable of the environment that the sources name is in docs/guide.md's
// list, and that names no others.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/sources.h"

namespace {

using sluice::testing::CodeOf;
using sluice::testing::ForEachSource;
using sluice::testing::ReadText;
using sluice::testing::Root;
using Names = std::set<std::string>;

// All matches of the pattern's first group.
Names Matches(const std::string& text, const std::regex& pattern) {
  Names names;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end;
       at != end; ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

// What a source may ask for: ours wherever they are named, others' where the
// environment is read.
Names NamedIn(const std::string& code) {
  static const std::regex kOurs(R"re("(SLUICE_[A-Z0-9_]+)")re");
  static const std::regex kOthers(
      R"re("([A-Z][A-Z0-9]*_[A-Z0-9_]+|PATH|HOME|PYTHON[A-Z]+)")re");
  static const std::regex kReads(R"(getenv\(|\benvironment\b)");
  Names names =
      Matches(code, std::regex_search(code, kReads) ? kOthers : kOurs);
  if (code.find("temp_directory_path(") != std::string::npos) {
    names.merge(Names{"TMPDIR", "TMP", "TEMP", "TEMPDIR"});  // libstdc++'s
  }
  return names;
}

Names ListedIn(const std::string& guide) {
  const size_t begin = guide.find("## Environment variables\n");
  REQUIRE(begin != std::string::npos);
  const std::string section =
      guide.substr(begin, guide.find("\n## ", begin + 1) - begin);
  // The first column.
  static const std::regex kCell(R"(\n\| (`[^|]*) \|)");
  static const std::regex kName(R"(`([A-Z0-9_]+)`)");
  Names listed;
  for (const std::string& cell : Matches(section, kCell)) {
    listed.merge(Matches(cell, kName));
  }
  return listed;
}

Names Without(const Names& all, const Names& some) {
  Names left;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(),
                      std::inserter(left, left.end()));
  return left;
}

TEST_CASE("the variables of the environment are those that the guide lists") {
  Names named;
  ForEachSource([&](const std::string& path, const std::string& text) {
    const std::string folder = path.substr(0, path.find('/'));
    if (folder == "tests" || folder == "bench") return;
    named.merge(NamedIn(CodeOf(text)));
  });
  const Names listed = ListedIn(ReadText(Root() / "docs/guide.md"));
  const Names missing = Without(named, listed), gone = Without(listed, named);
  CHECK_MESSAGE(missing.empty(), fmt::format("{}", fmt::join(missing, " ")));
  CHECK_MESSAGE(gone.empty(), fmt::format("{}", fmt::join(gone, " ")));
  CHECK(listed.contains("SLUICE_ISA"));
  CHECK(listed.size() > 40);
}

TEST_CASE("a variable that is read is found") {
  CHECK(NamedIn("std::getenv(\"SLUICE_X\");") == Names{"SLUICE_X"});
  CHECK(NamedIn("std::getenv(\"MY_X\");") == Names{"MY_X"});
  CHECK(NamedIn("Variable(\"SLUICE_X\");") == Names{"SLUICE_X"});
  CHECK(NamedIn("FirstOf(environment, {\"HOME\"})") == Names{"HOME"});
  CHECK(NamedIn("Kind(\"MY_X\");").empty());
  CHECK(NamedIn("std::filesystem::temp_directory_path()").contains("TMPDIR"));
}

}  // namespace
