// Where errors are returned nothing is thrown: not by a throw, and not by what
// throws when memory runs out (scarce_memory_test.cc has it run out).
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/sources.h"

namespace {

using sluice::testing::Allows;
using sluice::testing::CodeOf;
using sluice::testing::ForEachSource;
using sluice::testing::ReadText;
using sluice::testing::RoomOf;
using sluice::testing::Root;
using sluice::testing::Says;
using Lines = std::vector<std::string>;

// From the step's run downwards, and where files and peers are read, functions
// return a Status or Result, and none of these throws; AllocateTensor is there
// for tensors, CatchErrors for what throws by itself.
const std::set<std::string> kReturnErrors = {
    "engine/*",        "kernels/*",    "graph/text",      "graph/passes",
    "graph/compile",   "io/files",     "io/remote/*",     "io/cache",
    "io/checkpoints",  "io/summaries", "dist/net",        "dist/collective",
    "dist/membership", "dist/mpi/*",   "dist/rendezvous", "dist/cluster",
    "dist/servers"};
constexpr const char* kThrows[] = {"throw ", "throw;", "ValueOrThrow(",
                                   "ThrowIfError("};
// Each with the reason why it may.
const std::map<std::string, std::string> kMayThrow = {
    {"engine/caught.cc", "rethrows what it has caught"},
    {"engine/cpu_features.cc", "ChosenIsa returns no Result; callers' do"},
    {"engine/text/json.cc", "Json::Text returns no Result"},
    {"engine/shape.cc", "a constructor"},
    {"engine/status.h", "defines them"},
    {"engine/tensor.cc", "what AllocateTensor catches"},
    {"graph/passes/fused_cluster.cc", "RunPipeline catches what passes throw"},
    {"engine/threads.cc", "a constructor"},
    {"graph/passes/refine.cc", "Refine catches it"},
    {"graph/passes/spread_rows.cc", "SpreadVariables catches it"},
    {"io/cache/cache_segment.cc", "ExampleOf and ReadExample return no Result"},
    {"io/files/gzip.cc", "a constructor"},
    {"io/files/path_kind.cc", "SizesOf returns no Result"},
    {"io/remote/http/curl_client.cc", "Send catches it"},
    {"io/remote/s3/held_lease.cc", "a constructor"},
    {"kernels/cpu/onednn/onednn_conv.cc", "MakeKernel catches it"},
    {"kernels/cpu/onednn/onednn_pool.cc", "MakeKernel catches it"},
};
// Of these rooms tensors of kernels and passes are made where MakeKernel,
// RunKernel and RunPipeline catch; in the others a constructor of its own
// memory is the same as a throw.
const std::set<std::string> kTensorsCaught = {"engine/*", "kernels/*",
                                              "graph/passes"};
const std::map<std::string, std::string> kMayMakeTensors = {
    {"io/cache/example_cache.cc", "ExampleCache::Find returns no Result"},
    {"io/summaries/event_file.cc", "EventWriter::Image catches it"},
};

// What of a room that returns its errors throws them.
Lines Violations(const std::string& path, const std::string& text) {
  const std::string room = RoomOf(path), code = CodeOf(text);
  Lines found;
  if (!Allows(kReturnErrors, room)) return found;
  for (const char* word : kThrows) {
    if (!kMayThrow.contains(path) && Says(code, word)) {
      found.push_back(
          fmt::format("{}: '{}', where errors are returned", path, word));
    }
  }
  static const std::regex kMakesTensor(
      R"(\bTensor( [a-z]\w*)?\(\w|\bTensor::(Full|Zeros|Array)\(|\.Clone\(\))"
      R"(|\bAllocateBuffer\()");
  if (!Allows(kTensorsCaught, room) && !kMayMakeTensors.contains(path) &&
      std::regex_search(code, kMakesTensor)) {
    found.push_back(
        fmt::format("{}: a tensor whose memory may not be there; "
                    "use AllocateTensor",
                    path));
  }
  return found;
}

TEST_CASE("nothing throws where errors are returned") {
  Lines found;
  ForEachSource([&](const std::string& path, const std::string& text) {
    const Lines in_file = Violations(path, text);
    found.insert(found.end(), in_file.begin(), in_file.end());
  });
  CHECK_MESSAGE(found.empty(), fmt::format("{}", fmt::join(found, "\n")));
}

TEST_CASE("a function that throws where errors are returned is found") {
  for (const char* code :
       {"throw Error(why);", "return Parse(x).ValueOrThrow();",
        "ThrowIfError(x);", "Tensor t(dtype, shape);",
        "auto t = Tensor(dtype, shape);", "Tensor::Zeros(type, {2});",
        "return t.Clone();"}) {
    CAPTURE(code);
    CHECK(Violations("io/checkpoints/a.cc", code).size() == 1);
    CHECK(Violations("dist/cluster/a.cc", code).size() == 1);
    CHECK(Violations("graph/session/a.cc", code).empty());
  }
  CHECK(Violations("io/files/a.cc", "// throw Error\nCanThrow ();").empty());
  CHECK(Violations("kernels/cpu/a.cc", "Tensor t(dtype, shape);").empty());
  CHECK(
      Violations("graph/text/a.cc", "Tensor Parse(const Text& text);").size() ==
      0);
}

TEST_CASE("a file that is excepted from a rule is there and needs it") {
  for (const auto& [path, reason] : kMayThrow) {
    CAPTURE(path);
    const std::string code = CodeOf(ReadText(Root() / path));
    CHECK(std::any_of(std::begin(kThrows), std::end(kThrows),
                      [&](const char* word) { return Says(code, word); }));
  }
}

}  // namespace
