// What an op is like stands in its record: code that asks for an op by its name
// knows a fact that the record does not say, and forgets the next op of which
// it is true. What compares names on purpose is listed here.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "tests/places.h"

namespace {

namespace fs = std::filesystem;
using sluice::OpDef;
using sluice::OpTable;

struct Matcher {
  int comparisons;
  std::string_view reason;
};
constexpr std::string_view kPattern =
    "a pass: what it turns into what is these very ops";
constexpr std::string_view kFamily =
    "one function for several records of the same file";
constexpr std::string_view kLaunchers = "finds the kernel of each op";
constexpr std::string_view kScalars = "finds the loop of each scalar function";

const std::map<std::string, Matcher>& Matchers() {
  static const auto* const matchers = new std::map<std::string, Matcher>{
      {"graph/compile/part_buffers.cc",
       {2, "what joins and cuts, of which copies are spared"}},
      {"graph/ops/fused.cc", {1, kFamily}},
      {"graph/ops/matmul.cc", {3, kFamily}},
      {"graph/ops/random.cc", {1, kFamily}},
      {"graph/passes/fold_norm.cc", {2, kPattern}},
      {"graph/passes/fuse_elementwise.cc", {1, kPattern}},
      {"graph/passes/fuse_lists.cc", {2, kPattern}},
      {"graph/passes/fuse_norm.cc", {8, kPattern}},
      {"graph/passes/fuse_optimizer.cc", {8, kPattern}},
      {"graph/passes/fuse_pool.cc", {2, kPattern}},
      {"graph/passes/fuse_product.cc", {4, kPattern}},
      {"graph/passes/fused_cluster.cc", {1, kPattern}},
      {"graph/passes/pad_channels.cc", {4, kPattern}},
      {"graph/passes/precision.cc",
       {10,
        "casts are what it makes and removes, by what moves rows alone; roots "
        "make sizes of other sizes; and what a quotient or a product is scaled "
        "by may be too large or small for half"}},
      {"graph/passes/simplify.cc", {1, kPattern}},
      {"graph/passes/turn_filters.cc", {2, kPattern}},
      {"graph/traversal.cc", {1, "a NoOp is how updates are grouped"}},
      {"kernels/cpu/fused/fused_prepare.cc", {4, kScalars}},
      {"kernels/cuda/ops/conv/pool.cu", {6, kLaunchers}},
      {"kernels/cuda/ops/elementwise/elementwise.cu", {1, kScalars}},
      {"kernels/cuda/ops/random.cu", {4, kLaunchers}},
      {"kernels/cuda/ops/reduce/reduce.cu", {8, kLaunchers}},
      {"kernels/cuda/ops/reduce/reduce_integer.cu", {6, kLaunchers}},
      {"kernels/cuda/ops/reduce/softmax.cu", {2, kLaunchers}},
  };
  return *matchers;
}

bool IsOp(const std::string& word) {
  return OpTable::Global().Find(word) != nullptr;
}

// Of an op's name, and not of words such as "OHWI".
bool IsPartOfOp(const std::string& word) {
  const auto lower = [](unsigned char c) { return std::islower(c) != 0; };
  const auto all = OpTable::Global().All();
  return std::any_of(word.begin(), word.end(), lower) &&
         std::any_of(all.begin(), all.end(), [&](const OpDef* op) {
           const std::string_view name = op->name;
           return name.starts_with(word) || name.ends_with(word);
         });
}

// The names, and parts of names, that a source compares with, as they come.
std::vector<std::string> ComparedOps(std::string_view text) {
  const auto word_end = [&](size_t at) {
    while (at < text.size() &&
           std::isalnum(static_cast<unsigned char>(text[at])) != 0) {
      ++at;
    }
    return at;
  };
  std::vector<std::string> found;
  for (size_t quote = text.find('"'); quote != text.npos;
       quote = text.find('"', quote + 1)) {
    const size_t end = word_end(quote + 1);
    if (end == quote + 1 || end == text.size() || text[end] != '"') continue;
    const std::string word(text.substr(quote + 1, end - quote - 1));
    std::string_view before = text.substr(0, quote);
    before = before.substr(0, before.find_last_not_of(" \n") + 1);
    std::string_view after = text.substr(end + 1);
    after.remove_prefix(std::min(after.find_first_not_of(" \n"), after.size()));
    const bool compared = before.ends_with("Is(") || before.ends_with("==") ||
                          before.ends_with("!=") || after.starts_with("==") ||
                          after.starts_with("!=");
    const bool cut =
        before.ends_with("starts_with(") || before.ends_with("ends_with(");
    if ((compared && IsOp(word)) || (cut && IsPartOfOp(word))) {
      found.push_back(word);
    }
  }
  return found;
}

TEST_CASE("comparisons of op names are found") {
  CHECK(ComparedOps(R"(if (node.Is("Cast")) return;)").size() == 1);
  CHECK(ComparedOps(R"(a = op == "Sum" ? 1 : op !=
                           "Mean";)")
            .size() == 2);
  CHECK(ComparedOps(R"("Relu" == op)").size() == 1);
  CHECK(ComparedOps(R"(op.starts_with("Depthwise"))").size() == 1);
  CHECK(ComparedOps(R"(name.ends_with( "BackpropInput"))").size() == 1);
  CHECK(ComparedOps(R"(layout == "OHWI" || text.starts_with("Ohw") ||
                       padding == "SAME" || device.starts_with("gpu"))")
            .size() == 1);
  CHECK(ComparedOps(R"(OpTable::Global().Get("Cast"))").empty());
  CHECK(ComparedOps(R"(table.Register({.op = "Cast"});)").empty());
}

TEST_CASE("op names are compared where a pattern is meant, and nowhere else") {
  const fs::path root = SLUICE_SOURCE_DIR;
  const std::set<std::string> sources = {".h", ".cc", ".cu"};
  std::vector<std::string> wrong;
  std::set<std::string> seen;
  for (const char* folder : {"engine", "kernels", "graph"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(root / folder)) {
      if (!sources.contains(entry.path().extension().string())) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      const std::vector<std::string> found = ComparedOps(text.str());
      const std::string path = entry.path().lexically_relative(root).string();
      const auto matcher = Matchers().find(path);
      const bool listed = matcher != Matchers().end();
      if (listed) seen.insert(path);
      const int allowed = listed ? matcher->second.comparisons : 0;
      if (static_cast<int>(found.size()) == allowed) continue;
      wrong.push_back(
          fmt::format("{} compares with {} names of ops ({}), {} "
                      "are listed; is it a fact for the record?",
                      path, found.size(), fmt::join(found, ", "), allowed));
    }
  }
  CHECK_MESSAGE(wrong.empty(), fmt::format("{}", fmt::join(wrong, "\n")));
  for (const auto& [path, matcher] : Matchers()) {
    CHECK_MESSAGE(seen.contains(path), path);
    CHECK(!matcher.reason.empty());
  }
}

}  // namespace
