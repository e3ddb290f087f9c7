// docs/ops.md names a builder for every op that users add: it must be declared
// in a public header and shown by libsluice.so.
#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.h"

namespace {

const std::string kRoot = SLUICE_SOURCE_DIR "/";

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(kRoot + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  REQUIRE_MESSAGE(!lines.empty(), path);
  return lines;
}

// As the page writes them: "Conv2D", "Graph::Variable".
std::vector<std::string> Builders() {
  const std::regex builder("- builder: `([A-Za-z0-9_:]+)`");
  std::vector<std::string> builders;
  std::smatch match;
  for (const std::string& line : LinesOf("docs/ops.md")) {
    if (line.rfind("- builder:", 0) != 0) continue;
    REQUIRE_MESSAGE(std::regex_match(line, match, builder), line);
    builders.push_back(match[1]);
  }
  return builders;
}

// The functions that the public headers of graph/ declare: a line that begins
// with the type of a result and goes on with a name and "(".
std::set<std::string> Declared() {
  const std::regex function(
      R"(^\s*(?:Output|Operation|std::vector<Output>|std::pair<Output, Output>|)"
      R"([A-Z][A-Za-z0-9]*) ([A-Z][A-Za-z0-9]*)\()");
  std::set<std::string> names;
  std::smatch match;
  for (const std::string& entry : LinesOf("cmake/SluicePublicHeaders.cmake")) {
    if (entry.rfind("  graph/", 0) != 0) continue;
    std::string header = entry.substr(2);
    if (header.back() == ')') header.pop_back();
    for (const std::string& line : LinesOf(header)) {
      if (!std::regex_search(line, match, function)) continue;
      names.insert(match[1]);
      if (header == "graph/graph.h") names.insert("Graph::" + match[1].str());
    }
  }
  return names;
}

TEST_CASE("every builder that docs/ops.md names is declared and exported") {
  const std::vector<std::string> builders = Builders();
  CHECK(builders.size() > 100);
  const std::set<std::string> declared = Declared();
  const std::vector<std::string> lines = LinesOf("cmake/exports.txt");
  const std::set<std::string> exported(lines.begin(), lines.end());
  for (const std::string& builder : builders) {
    CHECK_MESSAGE(declared.count(builder) == 1, builder);
    CHECK_MESSAGE(exported.count("sluice::" + builder) == 1, builder);
  }
}

}  // namespace
