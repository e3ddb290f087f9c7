// The kernel benchmark on a GPU: its rows are whole and right in every dtype.
#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/kernel_bench/gpu.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Accelerator> Gpu() {
  RegisterGpu();
  if (!OnRealGpu()) cuda::emulation::SetMachine({.memory = 64 << 20});
  return OpenAccelerator(DeviceType::kCuda, 0, false).ValueOrThrow();
}

bench::Options Asking(const char* suite, const char* filter, DType dtype) {
  bench::Options options;
  options.suites = {suite};
  options.filter = filter;
  options.seconds = 0.001;
  options.json = true;
  options.device = "/gpu:0";
  options.dtype = dtype;
  return options;
}

TEST_CASE("a row has both times, the share of the device and the error") {
  const auto gpu = Gpu();
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(NameOf(dtype));
    const bench::Options options =
        Asking("softmax", "LogSoftmax [100,10]", dtype);
    std::ostringstream out;
    const int wrong = bench::RunCasesOn(*gpu, bench::AllCases(), options, out);
    CHECK(wrong == 0);
    std::istringstream lines(out.str());
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(Json::parse(line)["copy_gbs"].get<double>() > 0);
    REQUIRE(std::getline(lines, line));
    const Json row = Json::parse(line);
    CHECK(row["dtype"] == NameOf(dtype));
    CHECK(row["seconds"].get<double>() > 0);
    CHECK(row["cold_seconds"].get<double>() > 0);
    CHECK(row["share"].get<double>() > 0);
    CHECK(row["verdict"] == "ok");
  }
}

// Its y has to be what the pool makes of its x, on a GPU as on the CPU.
TEST_CASE("the maximum pool's gradient is right") {
  const auto gpu = Gpu();
  const std::vector<bench::Case> cases = bench::PoolCases(/*images=*/1);
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(NameOf(dtype));
    std::ostringstream out;
    const int wrong = bench::RunCasesOn(
        *gpu, cases, Asking("pool", "MaxPoolGrad [1,", dtype), out);
    CHECK_MESSAGE(wrong == 0, out.str());
    CHECK(out.str().find("\"MaxPoolGrad\"") != std::string::npos);
  }
}

TEST_CASE("a dtype that no kernel takes is told from rows that there are not") {
  const auto gpu = Gpu();
  std::ostringstream out;
  const auto run = [&](const char* filter, DType dtype) {
    bench::RunCasesOn(*gpu, bench::AllCases(),
                      Asking("optimizer", filter, dtype), out);
  };
  CHECK_THROWS_WITH_AS(run("[65536]", DType::kBFloat16),
                       "no kernel takes bfloat16 in what was asked for", Error);
  CHECK_THROWS_WITH_AS(run("no such row", DType::kBFloat16),
                       "no row was asked for", Error);
  CHECK_NOTHROW(run("ApplySgd [65536]", DType::kFloat32));
}

}  // namespace
}  // namespace sluice::testing
