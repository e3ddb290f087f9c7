// The kernel benchmark: its rows are whole, a wrong kernel does not pass, and
// bench/compare notices a slower one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/kernel_bench/bench.h"
#include "engine/threads.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

std::vector<Json> Rows(const std::string& text) {
  std::vector<Json> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(Json::parse(line));
  }
  return rows;
}

bench::Options Tiny(const std::string& suite, const std::string& filter) {
  bench::Options options;
  options.suites = {suite};
  options.filter = filter;
  options.threads = 2;
  options.seconds = 0.001;
  options.json = true;
  return options;
}

// The last row and the number of wrong ones.
std::pair<Json, int> Run(const bench::Options& options) {
  std::ostringstream out;
  const int wrong = bench::RunCases(bench::AllCases(), options, out);
  SetComputeThreads(0);
  return {Rows(out.str()).back(), wrong};
}

TEST_CASE("a row says everything that is promised") {
  std::ostringstream out;
  const int wrong = bench::RunCases(
      bench::AllCases(), Tiny("optimizer", "ApplyMomentum [65536]"), out);
  SetComputeThreads(0);
  CHECK(wrong == 0);
  const std::vector<Json> rows = Rows(out.str());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["bench"] == "machine");
  CHECK(rows[0]["gflops"].get<double>() > 0);
  const Json& row = rows[1];
  CHECK(row["bench"] == "kernel");
  CHECK(row["suite"] == "optimizer");
  CHECK(row["op"] == "ApplyMomentum");
  CHECK(row["shape"] == "[65536] [65536] [65536]");
  CHECK(row["pass"] == "update");
  CHECK(row["peer"] == "loop");
  CHECK(row["threads"] == 2);
  CHECK(row["verdict"].get<std::string>().find("WRONG") == std::string::npos);
  for (const char* figure :
       {"seconds", "gbs", "roofline", "peer_seconds", "ratio", "tolerance"}) {
    CHECK_MESSAGE(row[figure].get<double>() > 0, figure);
  }
  // Reads three streams and writes two, of four bytes.
  CHECK(row["gbs"].get<double>() * row["seconds"].get<double>() ==
        doctest::Approx(5 * 4 * 65536e-9));
  CHECK(row["variation"].get<double>() >= 0);
  CHECK(row["error"].get<double>() < row["tolerance"].get<double>());
}

TEST_CASE("every suite's smallest rows are right") {
  for (const auto& [suite, filter] :
       std::vector<std::pair<const char*, const char*>>{
           {"gemm", "100x10x32"},
           {"elementwise", "[100,1024]"},
           {"elementwise", "RandomUniform [102400]"},
           {"chain", "[262144]"},
           {"reduction", "[102400]"},
           {"reduction", "[784,2048]"},
           {"softmax", "[100,10]"},
           {"pool", "[16,7,7,2048]"},
           {"optimizer", "[65536]"},
           {"memcpy", "[32768]"}}) {
    const auto [row, wrong] = Run(Tiny(suite, filter));
    CHECK_MESSAGE(wrong == 0, suite << " " << filter << ": " << row.dump());
  }
}

TEST_CASE("the reference kernels can be chosen") {
  bench::Options options = Tiny("gemm", "100x10x32 forward");
  options.provider = "reference";
  const auto [row, wrong] = Run(options);
  CHECK(row["provider"] == "reference");
  CHECK(wrong == 0);
  options.provider = "nobody";
  CHECK_THROWS_AS(Run(options), Error);
}

TEST_CASE("a wrong kernel makes the benchmark fail") {
  // Computes exp(x), but for one element in the middle.
  KernelTable::Global().Register(
      {.op = "Exp",
       .priority = 1000,
       .provider = "planted",
       .dtypes = DType::kFloat32,
       .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
         const int64_t n = spec.outputs[0].shape.elements();
         return KernelOf([n](const KernelContext& c) {
           for (int64_t i = 0; i < n; ++i) {
             c.output<float>(0)[i] = std::exp(c.input<float>(0)[i]);
           }
           c.output<float>(0)[0] += 1e-3f;
         });
       }});
  const auto [row, wrong] = Run(Tiny("elementwise", "Exp [100,1024]"));
  CHECK(wrong == 1);
  CHECK(row["provider"] == "planted");
  CHECK(row["verdict"] == "WRONG");
  CHECK(row["error"].get<double>() > row["tolerance"].get<double>());
}

TEST_CASE("an element left unwritten is found wherever it is") {
  bench::Case c;
  c.reference = [](const std::vector<Tensor>&, int, int64_t) { return 0.0; };
  c.samples = 2;
  bench::Subject subject;
  subject.results = {Tensor::Zeros(DType::kFloat32, {1000})};
  CHECK(bench::ErrorOf(c, subject, {}) == 0);
  subject.results[0].data<float>()[501] = std::nanf("");
  CHECK(std::isinf(bench::ErrorOf(c, subject, {})));
}

TEST_CASE("bench/compare fails over a slower row") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) {
    MESSAGE("skipped: there is no python3");
    return;
  }
  TemporaryFolder folder;
  const auto write = [&](const char* name, double seconds) {
    std::ofstream(folder / name)
        << Json{{"bench", "kernel"}, {"suite", "conv"}, {"op", "Conv2D"},
                {"shape", "1x2"},    {"pass", "data"},  {"seconds", seconds},
                {"verdict", "ok"}}
        << "\n"
        << Json{{"bench", "kernel"},  {"suite", "conv"},   {"op", "Conv2D"},
                {"shape", "1x2"},     {"pass", "forward"}, {"seconds", 1e-5},
                {"verdict", "slower"}}
        << "\n";
  };
  write("old.json", 1e-3);
  write("same.json", 1.04e-3);
  write("slow.json", 1.06e-3);
  const auto compare = [&](const char* file) {
    const std::string command = fmt::format(
        "cd {} && {}/bench/compare old.json {} --fail-over 5% >out.txt 2>&1",
        folder.path(), SLUICE_SOURCE_DIR, file);
    return std::system(command.c_str());
  };
  CHECK(compare("same.json") == 0);
  CHECK(compare("slow.json") != 0);
  std::ifstream file(folder / "out.txt");
  const std::string out(std::istreambuf_iterator<char>(file), {});
  CHECK_MESSAGE(
      out.find("kernel conv Conv2D 1x2 data seconds") != std::string::npos,
      out);
  CHECK_MESSAGE(out.find("forward seconds") != std::string::npos, out);
}

}  // namespace
}  // namespace sluice::testing
