// The kernel benchmark on a GPU: its rows are whole and right in every dtype.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/kernel_bench/gpu.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

TEST_CASE("a row has both times, the share of the device and the error") {
  RegisterGpu();
  if (!OnRealGpu()) cuda::emulation::SetMachine({.memory = 64 << 20});
  const auto gpu = OpenAccelerator(DeviceType::kCuda, 0, false).ValueOrThrow();
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(NameOf(dtype));
    bench::Options options;
    options.suites = {"softmax"};
    options.filter = "LogSoftmax [100,10]";
    options.seconds = 0.001;
    options.json = true;
    options.device = "/gpu:0";
    options.dtype = dtype;
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

}  // namespace
}  // namespace sluice::testing
